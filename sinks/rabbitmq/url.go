package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	defaultHeartbeat = 10 * time.Second
	defaultHandshake = 10 * time.Second // connecting, TLS and login together
)

// endpoint is one node of the broker.
type endpoint struct {
	addr      string // host:port, its name in errors
	vhost     string
	auth      []amqp.Authentication
	tls       *tls.Config // nil: plain
	heartbeat time.Duration
	handshake time.Duration
}

// endpoints reads URL and TLS_CA. Errors begin with the setting's name and hold nothing of the URL: what looks like
// a port or a path may be a piece of a password that wasn't encoded.
func (s *settings) endpoints() ([]endpoint, error) {
	var found []endpoint
	for _, text := range splitURLs(string(s.URL)) {
		e, err := parseURL(text, s.TLSCA)
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	if s.TLSCA != "" && !slices.ContainsFunc(found, func(e endpoint) bool { return e.tls != nil }) {
		return nil, errors.New("TLS_CA: must be left out, or URL must begin with amqps://")
	}
	return found, nil
}

// A comma may be part of a password, so only one before another URL separates.
var separator = regexp.MustCompile(`\s*,\s*(amqps?://)`)

func splitURLs(text string) []string {
	return strings.Split(separator.ReplaceAllString(strings.Trim(text, ", \t\r\n"), "\n$1"), "\n")
}

var parameters = []string{"heartbeat", "connection_timeout", "cacertfile", "certfile", "keyfile", "server_name_indication", "auth_mechanism"}

func parseURL(text, ca string) (endpoint, error) {
	const form = "must be an AMQP URL such as amqp://user:password@host:5672/vhost, with special characters of user, password and vhost percent-encoded (%2F is a slash); its value is secret and isn't shown"
	uri, err := amqp.ParseURI(text)
	u, other := url.Parse(text)
	if err != nil || other != nil || u.Fragment != "" || u.Opaque != "" || strings.ContainsAny(uri.Host, ", ") {
		return endpoint{}, errors.New("URL: " + form)
	}
	if uri.Port < 1 || uri.Port > 65535 {
		return endpoint{}, errors.New("URL: must have a port from 1 to 65535")
	}
	if len(uri.Vhost) > maxShort {
		return endpoint{}, fmt.Errorf("URL: must have a vhost of at most %d bytes", maxShort)
	}
	for name := range u.Query() {
		if !slices.Contains(parameters, name) {
			return endpoint{}, errors.New("URL: can't have other parameters than " + strings.Join(parameters, ", ") + "; a ? in a password must be written %3F")
		}
	}
	e := endpoint{
		addr:      net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		vhost:     uri.Vhost,
		heartbeat: defaultHeartbeat,
		handshake: defaultHandshake,
	}
	switch {
	case uri.ConnectionTimeout < 0 || uri.ConnectionTimeout > 600_000:
		return e, errors.New("URL: must have a connection_timeout of at most 600000 milliseconds")
	case uri.ConnectionTimeout > 0:
		e.handshake = time.Duration(uri.ConnectionTimeout) * time.Millisecond
	}
	if n, err := strconv.Atoi(u.Query().Get("heartbeat")); err == nil {
		e.heartbeat = time.Duration(n) * time.Second
	}
	if e.auth, err = authentication(uri); err != nil {
		return e, err
	}
	if uri.Scheme == "amqps" {
		e.tls, err = tlsConfig(uri, ca)
	}
	return e, err
}

func authentication(uri amqp.URI) ([]amqp.Authentication, error) {
	var auth []amqp.Authentication
	for _, name := range uri.AuthMechanism {
		switch strings.ToUpper(name) {
		case "PLAIN":
			auth = append(auth, uri.PlainAuth())
		case "AMQPLAIN":
			auth = append(auth, uri.AMQPlainAuth())
		case "EXTERNAL":
			auth = append(auth, &amqp.ExternalAuth{})
		default:
			return nil, errors.New("URL: must have plain, amqplain or external as auth_mechanism")
		}
	}
	if auth == nil {
		auth = append(auth, uri.PlainAuth())
	}
	return auth, nil
}

func tlsConfig(uri amqp.URI, ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: uri.ServerName}
	if config.ServerName == "" {
		config.ServerName = uri.Host
	}
	setting := "TLS_CA"
	if ca == "" {
		setting, ca = "URL", uri.CACertFile
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%s: must name a file of certificates that can be read: %w", setting, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: must name a PEM file with at least one certificate: there is none in %s", setting, ca)
		}
	}
	if (uri.CertFile == "") != (uri.KeyFile == "") {
		return nil, errors.New("URL: must have certfile and keyfile together")
	}
	if uri.CertFile != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // each time: it may be renewed in place
			pair, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("URL: must have a certfile and a keyfile that belong together: %w", err)
		}
		config.GetClientCertificate = load
	}
	return config, nil
}
