package native

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/services/process"
)

// RabbitMQ is a node of its own beside any that the system runs, with its own port mapper.
type RabbitMQ struct {
	*Server
	Addr string // plaintext AMQP, host:port
	URL  string // the same as amqp:, user guest
	TLS  string // amqps:, user guest
	CA   string // file: the authority of the node's certificate
	Mgmt string // the management API, user and password in the URL
	Ctl  string // script: rabbitmqctl for this node

	sbin string
	epmd *process.Process
}

// NewRabbitMQ starts a node.
func NewRabbitMQ(ctx context.Context, e *Env) (*RabbitMQ, error) {
	var sbin string
	if !e.Docker {
		if err := e.install(ctx, needRabbitMQ); err != nil {
			return nil, fmt.Errorf("start RabbitMQ: %w", err)
		}
		var err error
		if sbin, err = rabbitFolder(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	server, err := e.newServer(ctx, "rabbitmq", 5)
	if err != nil {
		return nil, err
	}
	r := &RabbitMQ{
		Server: server, sbin: sbin, CA: server.path("ca.pem"), Ctl: server.path("rabbitmqctl"), Addr: server.addr(0),
		URL: "amqp://guest:guest@" + server.addr(0) + "/", TLS: "amqps://guest:guest@" + server.addr(1) + "/",
		Mgmt: "http://guest:guest@" + server.addr(2),
	}
	if err := r.begin(ctx); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

// Stop ends the node and its port mapper and removes its data. It may be called twice.
func (r *RabbitMQ) Stop() error {
	err := r.Server.Stop()
	r.epmd.Kill()
	return err
}

// begin writes the configuration and starts the node.
func (r *RabbitMQ) begin(ctx context.Context) error {
	if err := r.configure(); err != nil {
		return err
	}
	if !r.env.Docker {
		if err := r.mapPorts(ctx); err != nil {
			return err
		}
	}
	node := r.command("RabbitMQ", filepath.Join(r.sbin, "rabbitmq-server"))
	node.Env = append(node.Env, r.variables()...)
	// Else the script stays as a parent between us and the node, and a kill would reach only the script.
	node.Env = append(node.Env, "RUNNING_UNDER_SYSTEMD=true")
	return r.start(ctx, node, image{RabbitMQImage, "rabbitmq-server", nil, []string{r.addr(0), r.addr(1), r.addr(2)}}, r.ready)
}

// mapPorts starts the node's port mapper: left to the node, that would be a daemon which outlives it. In a container
// it ends with the container.
func (r *RabbitMQ) mapPorts(ctx context.Context) error {
	path, err := exec.LookPath("epmd")
	if err != nil {
		return fmt.Errorf("start RabbitMQ: %w", err)
	}
	mapper := r.command("epmd", path, "-port", strconv.Itoa(r.ports[4]), "-address", "127.0.0.1")
	if r.epmd, err = process.Start(mapper); err != nil {
		return err
	}
	return r.epmd.Await(ctx, func(ctx context.Context) error { return reachable(ctx, r.addr(4)) })
}

func (r *RabbitMQ) configure() error {
	certs, err := NewCertificates()
	if err != nil {
		return err
	}
	conf := []string{
		"listeners.tcp.1 = " + r.bind(0), "listeners.ssl.1 = " + r.bind(1),
		"ssl_options.cacertfile = " + r.CA, "ssl_options.certfile = " + r.path("server.pem"), "ssl_options.keyfile = " + r.path("server.key"),
		"management.tcp.ip = " + r.bindHost(), "management.tcp.port = " + strconv.Itoa(r.ports[2]),
		"vm_memory_high_watermark.absolute = 2GB", "disk_free_limit.absolute = 50MB",
		"loopback_users = none", // a published port's connections come from the engine's address
	}
	return errors.Join(
		r.write("rabbitmq.conf", strings.Join(conf, "\n")+"\n"), r.write("plugins", "[rabbitmq_management].\n"),
		r.write(".erlang.cookie", rand.Text()), os.Chmod(r.path(".erlang.cookie"), 0o400),
		r.write("ca.pem", certs.Authority), r.write("server.pem", certs.Server), r.write("server.key", certs.ServerKey),
		r.write("rabbitmqctl", r.ctl()), os.Chmod(r.Ctl, 0o700))
}

// ctl is the script that runs rabbitmqctl for this node.
func (r *RabbitMQ) ctl() string {
	if r.env.Docker {
		return "#!/bin/sh\nexec docker exec " + r.container(image{}).Name() + " rabbitmqctl -n " + r.node() + " \"$@\"\n"
	}
	return "#!/bin/sh\nexec env -i PATH=\"$PATH\" HOME='" + r.folder.Path + "' LANG=C.UTF-8 '" +
		strings.Join(r.variables(), "' '") + "' '" + filepath.Join(r.sbin, "rabbitmqctl") + "' -n " + r.node() + " \"$@\"\n"
}

// node is a name on localhost: with the machine's own name the node would depend on the machine's name service.
func (r *RabbitMQ) node() string { return "relay-" + strconv.Itoa(r.ports[0]) + "@localhost" }

// variables tell the node and its tools apart from any other on the machine.
func (r *RabbitMQ) variables() []string {
	return []string{
		"RABBITMQ_NODENAME=" + r.node(), "RABBITMQ_CONFIG_FILE=" + r.path("rabbitmq.conf"), "RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_MNESIA_BASE=" + r.path("mnesia"), "RABBITMQ_LOG_BASE=" + r.path("logs"), "RABBITMQ_LOGS=-",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + r.path("plugins"), "RABBITMQ_PID_FILE=" + r.path("pid"),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(r.ports[3]), "ERL_EPMD_PORT=" + strconv.Itoa(r.ports[4]), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// ready logs in and asks the management API: the listener opens before the plugins have started.
func (r *RabbitMQ) ready(ctx context.Context) error {
	if err := get(ctx, "http://"+r.addr(2)+"/api/overview", "guest", "guest"); err != nil {
		return err
	}
	conn, err := amqp.Dial(r.URL)
	if err != nil {
		return err
	}
	return errors.Join(conn.Close(), reachable(ctx, r.addr(1)))
}

// rabbitFolder finds the scripts of the newest RabbitMQ. Debian's wrappers in /usr/sbin are for its own user only.
func rabbitFolder() (string, error) {
	folders, _ := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
	if len(folders) > 0 {
		return slices.Max(folders), nil
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		return "", fmt.Errorf("find RabbitMQ: %w", err)
	}
	return filepath.Dir(path), nil
}
