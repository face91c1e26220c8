package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/stage"
)

// setUpRabbitMQ makes the relays' user, an exchange, and a queue for each destination.
func (w *world) setUpRabbitMQ() {
	w.t.Helper()
	password := w.canaries["the password of RabbitMQ"]
	w.manage(http.MethodPut, "/api/users/relay", map[string]string{"password": password, "tags": ""}, nil)
	w.manage(http.MethodPut, "/api/permissions/%2F/relay", map[string]string{"configure": ".*", "write": ".*", "read": ".*"}, nil)
	w.rabbitURL = strings.Replace(w.rabbit.URL, "guest:guest", "relay:"+password, 1)
	w.declare()
}

// manage asks the node's management API, which is a process less than rabbitmqctl.
func (w *world) manage(method, path string, body, into any) {
	w.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.rabbit.Mgmt+path, bytes.NewReader(text))
	if err != nil {
		w.t.Fatal(err)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	} else if into != nil {
		err = json.NewDecoder(resp.Body).Decode(into)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// closeConnections has the node close all that it knows of, as an operator may.
func (w *world) closeConnections() {
	w.t.Helper()
	var all []struct{ Name string }
	w.manage(http.MethodGet, "/api/connections", nil, &all)
	for _, c := range all {
		w.manage(http.MethodDelete, "/api/connections/"+url.PathEscape(c.Name), nil, nil)
	}
}

// declare makes an exchange and a queue for each address.
func (w *world) declare() {
	w.t.Helper()
	w.onRabbitMQ(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare("chaos", "direct", true, false, false, false, nil); err != nil {
			return err
		}
		for _, address := range places("rabbitmq") {
			_, key, _ := strings.Cut(address, "/")
			if _, err := ch.QueueDeclare(address, true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.QueueBind(address, key, "chaos", false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *world) onRabbitMQ(do func(*amqp.Channel) error) {
	w.t.Helper()
	conn, err := amqp.Dial(w.rabbit.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// consumeRabbitMQ gets one message after the other until the queue is empty.
func (w *world) consumeRabbitMQ(address string) (all []history.Arrival) {
	w.t.Helper()
	w.onRabbitMQ(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(address, true, false, false, false, nil)
		if err != nil {
			return err
		}
		in, err := ch.Consume(address, "", true, false, false, false, nil)
		if err != nil {
			return err
		}
		for range q.Messages {
			select {
			case d := <-in:
				all = append(all, arrival("rabbitmq:"+address, stage.FromRabbitMQ(d)))
			case <-time.After(time.Minute):
				w.t.Fatalf("%s: %d of %d messages came", address, len(all), q.Messages)
			}
		}
		return nil
	})
	return all
}
