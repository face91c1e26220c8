package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jobrelay/relay/config"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const partitions = 6

type kafkaSettings struct {
	Brokers   []string `env:"BROKERS"`
	TLS       bool     `env:"TLS"`
	CA        string   `env:"TLS_CA"`
	Cert      string   `env:"TLS_CERT"`
	Key       string   `env:"TLS_KEY"`
	Mechanism string   `env:"SASL_MECHANISM"`
	Username  string   `env:"SASL_USERNAME"`
	Password  string   `env:"SASL_PASSWORD" secret:"true"`
}

func createTopic(ctx context.Context, env config.Environ) error {
	var s kafkaSettings
	if err := decode(env, "kafka", &s); err != nil {
		return err
	}
	transport, err := s.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	for i, b := range s.Brokers {
		if !strings.Contains(b, ":") {
			s.Brokers[i] = b + ":9092"
		}
	}
	client := &kafka.Client{Addr: kafka.TCP(s.Brokers...), Timeout: createTimeout, Transport: transport}
	// -1: as many replicas as the cluster's own default.
	response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: Place, NumPartitions: partitions, ReplicationFactor: -1}},
	})
	if err != nil {
		return err
	}
	if err := response.Errors[Place]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return err
	}
	return nil
}

func (s kafkaSettings) transport() (*kafka.Transport, error) {
	t := &kafka.Transport{}
	var err error
	if s.TLS {
		if t.TLS, err = tlsConfig(s.CA, s.Cert, s.Key); err != nil {
			return nil, err
		}
	}
	t.SASL, err = s.sasl()
	return t, err
}

func (s kafkaSettings) sasl() (sasl.Mechanism, error) {
	switch strings.ToUpper(s.Mechanism) {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, s.Username, s.Password)
	default:
		return scram.Mechanism(scram.SHA512, s.Username, s.Password)
	}
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
