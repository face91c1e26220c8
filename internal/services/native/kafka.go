package native

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"text/template"

	"github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/internal/services/process"
)

// KafkaUser may log in to the SASL listener, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const KafkaUser = "relay"

// proxiedListeners is how many tests at once can put a proxy before the shared broker.
const proxiedListeners = 4

// Kafka is a broker in KRaft mode: a single one, which is its own controller, or one that has joined such a first one.
// Each listener is an address of its own, see server.properties.
type Kafka struct {
	*Server
	ID       int    // of the node, from 1
	First    *Kafka // whom it has joined, nil when it is the first
	Addr     string // plaintext
	SASL     string // SASL_PLAINTEXT
	Password string // of KafkaUser
	TLS      string // SSL; a client certificate is asked for, and checked if there is one
	MTLS     string // SSL; without a client certificate there's no way in
	CA       string // file: the authority of the broker's certificate
	Cert     string // file: a client's certificate
	Key      string // file: its key
	// Proxied are plaintext listeners, and Advertised, by the same index, the addresses that the broker sends their
	// clients to: free ones, where a test may listen and forward to the listener.
	Proxied, Advertised []string

	cluster string // id
}

var (
	//go:embed server.properties.tmpl
	serverProperties string
	kafkaProperties  = template.Must(template.New("server.properties").Funcs(template.FuncMap{"on": on}).Parse(serverProperties))
	//go:embed log4j2.properties
	log4jProperties string
)

// NewKafka starts a broker.
func NewKafka(ctx context.Context, e *Env) (*Kafka, error) { return newKafka(ctx, e, 1, nil) }

// NewKafkaCluster starts several brokers, of which the first is the controller. They find each other on this machine's
// loopback address and so run natively, also where other servers are containers.
func NewKafkaCluster(ctx context.Context, e *Env, n int) (all []*Kafka, err error) {
	natively := *e
	natively.Docker = false
	for id := 1; id <= n; id++ {
		var first *Kafka
		if id > 1 {
			first = all[0]
		}
		k, err := newKafka(ctx, &natively, id, first)
		if err != nil {
			for _, k := range all {
				err = errors.Join(err, k.Stop())
			}
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

func newKafka(ctx context.Context, e *Env, id int, first *Kafka) (*Kafka, error) {
	path, jars := "java", "/opt/kafka/libs" // as the image has them
	if !e.Docker {
		var err error
		if path, jars, err = e.jars(ctx, kafkaFolder, kafkaJars); err != nil {
			return nil, fmt.Errorf("start Kafka: %w", err)
		}
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	server, err := e.newServer(ctx, "kafka", 5+2*proxiedListeners)
	if err != nil {
		return nil, err
	}
	k := &Kafka{
		ID: id, First: first, cluster: clusterID(),
		Server: server, Addr: server.addr(0), SASL: server.addr(1), TLS: server.addr(2), MTLS: server.addr(3), Password: rand.Text(),
		CA: server.path("ca.pem"), Cert: server.path("client.pem"), Key: server.path("client.key"),
	}
	for i := range proxiedListeners {
		k.Proxied = append(k.Proxied, server.addr(5+2*i))
		k.Advertised = append(k.Advertised, server.addr(6+2*i))
	}
	if first != nil {
		k.cluster, k.Password = first.cluster, first.Password
	}
	if err := k.begin(ctx, path, jars); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

// begin writes the configuration, formats the data folder and starts the broker.
func (k *Kafka) begin(ctx context.Context, path, jars string) error {
	if err := k.configure(); err != nil {
		return err
	}
	format := k.env.java("256m", jars, "kafka.tools.StorageTool", "format", "-t", k.cluster, "-c", k.path("server.properties"))
	if k.First == nil {
		format = append(format, "--standalone")
	}
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		format = append(format, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, KafkaUser, k.Password))
	}
	serve := append([]string{"-Dlog4j2.configurationFile=file:" + k.path("log4j2.properties")},
		k.env.java("512m", jars, "kafka.Kafka", k.path("server.properties"))...)
	broker := image{KafkaImage, path, serve, append([]string{k.Addr, k.SASL, k.TLS, k.MTLS}, k.Proxied...)}
	var err error
	if k.env.Docker {
		err = k.container(broker).Run(ctx, path, format...)
	} else {
		err = process.Run(ctx, k.command("format Kafka's storage", path, format...))
	}
	if err != nil {
		return err
	}
	return k.start(ctx, k.command("Kafka", path, serve...), broker, k.ready)
}

func (k *Kafka) configure() error {
	certs, err := NewCertificates()
	if err != nil {
		return err
	}
	var text strings.Builder
	data := struct {
		*Kafka
		Folder, Bind, Controller, User string
	}{k, k.folder.Path, k.bindHost(), k.controller(), KafkaUser}
	if err := kafkaProperties.Execute(&text, data); err != nil {
		return fmt.Errorf("write Kafka's configuration: %w", err)
	}
	return errors.Join(
		k.write("server.properties", text.String()), k.write("log4j2.properties", log4jProperties),
		k.write("keystore.pem", certs.ServerKey+certs.Server), k.write("ca.pem", certs.Authority),
		k.write("client.pem", certs.client), k.write("client.key", certs.clientKey))
}

// controller is the address of the cluster's only one.
func (k *Kafka) controller() string {
	if k.First != nil {
		return k.First.controller()
	}
	return k.addr(4)
}

// ready asks for the brokers: the listener opens a little before the broker has joined its own cluster.
func (k *Kafka) ready(ctx context.Context) error {
	conn, err := kafka.DialContext(ctx, "tcp", k.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	brokers, err := conn.Brokers()
	if err == nil && len(brokers) == 0 {
		err = errors.New("no broker has registered")
	}
	return errors.Join(err, reachable(ctx, append([]string{k.SASL, k.TLS, k.MTLS}, k.Proxied...)...))
}

// on is addr's port on another host.
func on(host, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port)
}

// clusterID makes an id as Kafka writes them: 16 bytes in URL-safe base64, which must not look like an option.
func clusterID() string {
	id := make([]byte, 16)
	rand.Read(id)
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id)
}
