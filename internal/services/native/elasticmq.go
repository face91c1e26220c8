package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// ElasticMQ is an SQS server, with Amazon's limits enforced.
type ElasticMQ struct {
	*Server
	Addr string // host:port
	URL  string // the endpoint
}

// NewElasticMQ starts a server. It keeps queues in memory only.
func NewElasticMQ(ctx context.Context, e *Env) (*ElasticMQ, error) {
	var path, jars string
	if !e.Docker {
		var err error
		if path, jars, err = e.jars(ctx, elasticMQFolder, elasticMQJars); err != nil {
			return nil, fmt.Errorf("start ElasticMQ: %w", err)
		}
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	server, err := e.newServer(ctx, "elasticmq", 1)
	if err != nil {
		return nil, err
	}
	q := &ElasticMQ{Server: server, Addr: server.addr(0), URL: "http://" + server.addr(0)}
	config := "-Dconfig.file=" + server.path("elasticmq.conf")
	err = server.write("elasticmq.conf", elasticMQConf(server.bindHost(), server.ports[0]))
	if err == nil {
		command := server.command("ElasticMQ", path, append([]string{config}, e.java("256m", jars, "org.elasticmq.server.Main")...)...)
		err = server.start(ctx, command, image{ElasticMQImage, "", []string{config}, []string{q.Addr}}, q.ready)
	}
	if err != nil {
		return nil, errors.Join(err, q.Stop())
	}
	return q, nil
}

func elasticMQConf(bind string, port int) string {
	return fmt.Sprintf(`include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = %[2]d, context-path = "" }
rest-sqs { enabled = true, bind-port = %[2]d, bind-hostname = "%[1]s", sqs-limits = strict }
rest-stats { enabled = false }
`, bind, port)
}

func (q *ElasticMQ) ready(ctx context.Context) error { return get(ctx, q.URL+"/health", "", "") }

// get succeeds when url answers 200.
func get(ctx context.Context, url, user, password string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}
