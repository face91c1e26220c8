package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func (s *settings) validateTLS() []error {
	var found []error
	for _, f := range []named{{"TLS_CA", s.TLSCA}, {"TLS_CERT", s.TLSCert}, {"TLS_KEY", s.TLSKey}} {
		if f.value != "" && !s.TLS {
			found = append(found, fmt.Errorf("%s: needs TLS=true", f.name))
		}
	}
	switch {
	case s.TLSCert != "" && s.TLSKey == "":
		found = append(found, errors.New("TLS_KEY: is needed with TLS_CERT"))
	case s.TLSKey != "" && s.TLSCert == "":
		found = append(found, errors.New("TLS_CERT: is needed with TLS_KEY"))
	case s.TLSCert != "":
		if _, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey); err != nil {
			found = append(found, fmt.Errorf("TLS_CERT: %w", err))
		}
	}
	if s.TLSCA != "" {
		if _, err := loadCA(s.TLSCA); err != nil {
			found = append(found, fmt.Errorf("TLS_CA: %w", err))
		}
	}
	return found
}

func (s *settings) validateSASL() []error {
	var found []error
	for _, f := range s.login() {
		switch {
		case s.SASLMechanism != "" && f.value == "":
			found = append(found, fmt.Errorf("%s: is needed with SASL_MECHANISM", f.name))
		case s.SASLMechanism == "" && f.value != "":
			found = append(found, fmt.Errorf("SASL_MECHANISM: is needed with %s", f.name))
		case s.SASLMechanism != "":
			found = append(found, s.unfit(f)...)
		}
	}
	return found
}

// named is a setting that is checked beside another.
type named struct{ name, value string }

func (s *settings) login() []named {
	return []named{{"SASL_USERNAME", s.SASLUsername}, {"SASL_PASSWORD", s.SASLPassword}}
}

// unfit says what of a name or password the mechanism can't send. The library's own error repeats the value, so it is
// never shown.
func (s *settings) unfit(f named) []error {
	if s.SASLMechanism == "PLAIN" {
		if utf8.ValidString(f.value) && !strings.Contains(f.value, "\x00") {
			return nil
		}
		return []error{fmt.Errorf("%s: must be UTF-8 without NUL (its value isn't shown)", f.name)}
	}
	if _, err := scram.Mechanism(scram.SHA256, "", f.value); err == nil {
		return nil
	}
	return []error{fmt.Errorf("%s: has what SCRAM can't send (its value isn't shown): control characters such as a tab or a line break, "+
		"what isn't UTF-8, characters newer than Unicode 3.2 such as emoji, or right-to-left letters beside others (SASLprep, RFC 4013)", f.name)}
}

// tlsConfig is nil without TLS. The broker's name is filled in for each connection.
func (s *settings) tlsConfig() (*tls.Config, error) {
	if !s.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLSCA != "" {
		pool, err := loadCA(s.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("TLS_CA: %w", err)
		}
		c.RootCAs = pool
	}
	if s.TLSCert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
			if err != nil {
				return nil, fmt.Errorf("TLS_CERT: %w", err)
			}
			return &pair, nil
		}
	}
	return c, nil
}

func loadCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

// mechanism is nil without a login. After the check the library has no error left to give: those repeat the value.
func (s *settings) mechanism() (sasl.Mechanism, error) {
	if found := s.validateSASL(); len(found) > 0 {
		return nil, errors.Join(found...)
	}
	switch s.SASLMechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Mechanism{Username: s.SASLUsername, Password: s.SASLPassword}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, s.SASLUsername, s.SASLPassword)
	default:
		return scram.Mechanism(scram.SHA512, s.SASLUsername, s.SASLPassword)
	}
}

func (s *settings) dialer() (*dialer, error) {
	config, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	login, err := s.mechanism()
	if err != nil {
		return nil, err
	}
	return &dialer{tls: config, login: login}, nil
}
