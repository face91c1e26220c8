package native

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/internal/services/process"
)

// KafkaUser may log in to the SASL listener, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
const KafkaUser = "relay"

// proxiedListeners is how many tests at once can put a proxy before the shared broker.
const proxiedListeners = 4

// Kafka is a broker in KRaft mode: a single one, which is its own controller, or one of a cluster. Each listener is an
// address of its own, see server.properties.
type Kafka struct {
	*Server
	ID       int    // of the node, from 1
	Controls bool   // it is one of the cluster's controllers
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

	cluster   string   // id
	directory string   // id of the data folder, by which controllers know each other
	quorum    []*Kafka // the cluster's controllers
}

var (
	//go:embed server.properties.tmpl
	serverProperties string
	kafkaProperties  = template.Must(template.New("server.properties").Funcs(template.FuncMap{"on": on}).Parse(serverProperties))
	//go:embed log4j2.properties
	log4jProperties string
)

// NewKafka starts a broker.
func NewKafka(ctx context.Context, e *Env) (*Kafka, error) {
	all, err := newKafkas(ctx, e, 1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// NewKafkaCluster starts several brokers. The controllers are an odd number of them, so that of three any one may be away.
// They find each other on this machine's loopback address and so run natively, also where other servers are containers.
func NewKafkaCluster(ctx context.Context, e *Env, n int) ([]*Kafka, error) {
	natively := *e
	natively.Docker = false
	return newKafkas(ctx, &natively, n)
}

func newKafkas(ctx context.Context, e *Env, n int) ([]*Kafka, error) {
	path, jars := "java", "/opt/kafka/libs" // as the image has them
	if !e.Docker {
		var err error
		if path, jars, err = e.jars(ctx, kafkaFolder, kafkaJars); err != nil {
			return nil, fmt.Errorf("start Kafka: %w", err)
		}
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	all, err := layOut(ctx, e, n)
	if err == nil {
		err = beginAll(ctx, all, path, jars)
	}
	if err != nil {
		for _, k := range all {
			err = errors.Join(err, k.Stop())
		}
		return nil, err
	}
	return all, nil
}

// layOut gives the brokers of a cluster their folders and addresses.
func layOut(ctx context.Context, e *Env, n int) (all []*Kafka, err error) {
	cluster, password := newID(), rand.Text()
	for id := 1; id <= n; id++ {
		server, err := e.newServer(ctx, "kafka", 5+2*proxiedListeners)
		if err != nil {
			return all, err
		}
		k := &Kafka{
			ID: id, cluster: cluster, directory: newID(),
			Server: server, Addr: server.addr(0), SASL: server.addr(1), TLS: server.addr(2), MTLS: server.addr(3), Password: password,
			CA: server.path("ca.pem"), Cert: server.path("client.pem"), Key: server.path("client.key"),
		}
		for i := range proxiedListeners {
			k.Proxied = append(k.Proxied, server.addr(5+2*i))
			k.Advertised = append(k.Advertised, server.addr(6+2*i))
		}
		all = append(all, k)
	}
	quorum := all[:n-(n+1)%2]
	for _, k := range all {
		k.Controls, k.quorum = k.ID <= len(quorum), quorum
	}
	return all, nil
}

// beginAll starts the brokers of a cluster at once: none is ready before most of the controllers are there.
func beginAll(ctx context.Context, all []*Kafka, path, jars string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var starts sync.WaitGroup
	for i, k := range all {
		starts.Go(func() {
			if errs[i] = k.begin(ctx, path, jars); errs[i] != nil {
				cancel() // the others would wait for it
			}
		})
	}
	starts.Wait()
	return errors.Join(errs...)
}

// begin writes the configuration, formats the data folder and starts the broker.
func (k *Kafka) begin(ctx context.Context, path, jars string) error {
	if err := k.configure(); err != nil {
		return err
	}
	format := k.env.java("256m", jars, "kafka.tools.StorageTool", "format", "-t", k.cluster, "-c", k.path("server.properties"))
	if k.Controls {
		format = append(format, "--initial-controllers", k.voters())
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
		Folder, Bind, Controller, Bootstrap, User string
	}{k, k.folder.Path, k.bindHost(), k.controller(), k.bootstrap(), KafkaUser}
	if err := kafkaProperties.Execute(&text, data); err != nil {
		return fmt.Errorf("write Kafka's configuration: %w", err)
	}
	return errors.Join(
		k.write("server.properties", text.String()), k.write("log4j2.properties", log4jProperties),
		k.write("keystore.pem", certs.ServerKey+certs.Server), k.write("ca.pem", certs.Authority),
		k.write("client.pem", certs.client), k.write("client.key", certs.clientKey))
}

// controller is where it listens as a controller.
func (k *Kafka) controller() string { return k.addr(4) }

// bootstrap is where the controllers are.
func (k *Kafka) bootstrap() string {
	var list []string
	for _, c := range k.quorum {
		list = append(list, c.controller())
	}
	return strings.Join(list, ",")
}

// voters are the controllers as a new data folder is told of them.
func (k *Kafka) voters() string {
	var list []string
	for _, c := range k.quorum {
		list = append(list, fmt.Sprintf("%d@%s:%s", c.ID, c.controller(), c.directory))
	}
	return strings.Join(list, ",")
}

// ready asks for the brokers: the listener opens a little before the broker has joined its own cluster.
func (k *Kafka) ready(ctx context.Context) error {
	conn, err := kafka.DialContext(ctx, "tcp", k.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	brokers, err := conn.Brokers()
	if err == nil && !slices.ContainsFunc(brokers, func(b kafka.Broker) bool { return b.ID == k.ID }) {
		err = errors.New("it hasn't registered")
	}
	return errors.Join(err, reachable(ctx, append([]string{k.SASL, k.TLS, k.MTLS}, k.Proxied...)...))
}

// on is addr's port on another host.
func on(host, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port)
}

// newID makes an id as Kafka writes them: 16 bytes in URL-safe base64, which must not look like an option.
func newID() string {
	id := make([]byte, 16)
	rand.Read(id)
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id)
}
