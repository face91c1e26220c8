package rabbitmq

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/config"
)

func TestGoodURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, addr, vhost, user, password string }{
		{"amqp://localhost", "localhost:5672", "/", "guest", "guest"},
		{"amqps://h/", "h:5671", "/", "guest", "guest"},
		{"amqp://u:p@[::1]:5673/%2F", "[::1]:5673", "/", "u", "p"},
		{"amqp://u:p%40%2F%3F%23%25,%3A@h:1/a%2Fb", "h:1", "a/b", "u", "p@/?#%,:"},
		{"amqp://u:a,b@h:1/v", "h:1", "v", "u", "a,b"},
	} {
		s := &settings{URL: secret(c.url)}
		found, err := s.endpoints()
		if err != nil || len(found) != 1 {
			t.Errorf("%s: got %d endpoints, %v", c.url, len(found), err)
			continue
		}
		e := found[0]
		if e.addr != c.addr || e.vhost != c.vhost || e.auth[0].Response() != "\x00"+c.user+"\x00"+c.password {
			t.Errorf("%s: got %s %s %q", c.url, e.addr, e.vhost, e.auth[0].Response())
		}
		if (e.tls != nil) != strings.HasPrefix(c.url, "amqps") {
			t.Errorf("%s: TLS is %v", c.url, e.tls)
		}
	}
	s := &settings{URL: "amqp://a , amqps://u:x,y@b:1?heartbeat=5&connection_timeout=1500&auth_mechanism=external,amqp://c,"}
	found, err := s.endpoints()
	if err != nil || len(found) != 3 || found[0].addr != "a:5672" || found[1].addr != "b:1" || found[2].addr != "c:5672" {
		t.Fatalf("got %+v, %v, want three", found, err)
	}
	if e := found[1]; e.heartbeat != 5*time.Second || e.handshake != 1500*time.Millisecond || e.auth[0].Mechanism() != "EXTERNAL" {
		t.Errorf("parameters: got %+v", e)
	}
	if e := found[0]; e.heartbeat != defaultHeartbeat || e.handshake != defaultHandshake {
		t.Errorf("defaults: got %+v", e)
	}
}

// Every mistake is one problem that names the setting, says the rule and shows nothing of the URL.
func TestB30BadSettings(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "amqp://u:hunter2@h:5672/"
	for _, c := range []struct {
		env  map[string]string
		name string
	}{
		{map[string]string{}, "URL"},
		{map[string]string{"URL": "http://u:hunter2@h/"}, "URL"},
		{map[string]string{"URL": "u:hunter2@h:5672"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2/x@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2#x@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:12#hunter2@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:12?hunter2@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2 x@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2%@h:5672/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2@h:0/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2@h:65536/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2@h1,h2/"}, "URL"},
		{map[string]string{"URL": "amqp://u:hunter2@h/" + strings.Repeat("v", 256)}, "URL"},
		{map[string]string{"URL": good + "?hunter2=1"}, "URL"},
		{map[string]string{"URL": good + "?channel_max=1"}, "URL"},
		{map[string]string{"URL": good + "?heartbeat=hunter2"}, "URL"},
		{map[string]string{"URL": good + "?connection_timeout=-1"}, "URL"},
		{map[string]string{"URL": good + "?connection_timeout=9999999999"}, "URL"},
		{map[string]string{"URL": good + "?auth_mechanism=scram"}, "URL"},
		{map[string]string{"URL": good + ",amqp://u:hunter2@h:x/"}, "URL"},
		{map[string]string{"URL": "amqps://h/?certfile=/x"}, "URL"},
		{map[string]string{"URL": "amqps://h/?certfile=/nowhere&keyfile=/nowhere"}, "URL"},
		{map[string]string{"URL": "amqps://h/?cacertfile=/nowhere"}, "URL"},
		{map[string]string{"URL": good, "TLS_CA": empty}, "TLS_CA"},
		{map[string]string{"URL": "amqps://h/", "TLS_CA": "/nowhere"}, "TLS_CA"},
		{map[string]string{"URL": "amqps://h/", "TLS_CA": empty}, "TLS_CA"},
		{map[string]string{"URL": good, "CONNECTIONS": "0"}, "CONNECTIONS"},
		{map[string]string{"URL": good, "CONNECTIONS": "65"}, "CONNECTIONS"},
		{map[string]string{"URL": good, "WINDOW": "0"}, "WINDOW"},
		{map[string]string{"URL": good, "WINDOW": "10001"}, "WINDOW"},
	} {
		env := config.Environ{}
		for name, value := range c.env {
			env["RELAY_RABBITMQ_"+name] = value
		}
		found := config.Decode(env, "RELAY_RABBITMQ_", &settings{})
		if len(found) != 1 || found[0].Name != "RELAY_RABBITMQ_"+c.name {
			t.Errorf("%v: got %v, want one problem with %s", c.env, found, c.name)
			continue
		}
		if text := found[0].Text; strings.Contains(text, "hunter2") || strings.Contains(text, "\n") {
			t.Errorf("%v: %q shows the password or has several lines", c.env, text)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := decode(t, map[string]string{"URL": "amqp://u:hunter2@h/"})
	if s.Connections != 2 || s.Window != 1000 {
		t.Errorf("defaults: got %+v", s)
	}
	json, _ := s.URL.MarshalText()
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", *s, *s, *s, s.URL, s.URL, s.URL), s.URL.String(), string(json)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("got %s", text)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	s := &settings{}
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		text string
		want address
		ok   bool
	}{
		{"mail/receipts", address{"mail", "receipts"}, true},
		{"/queue", address{"", "queue"}, true},
		{"fan/", address{"fan", ""}, true},
		{"ex/a.b/c", address{"ex", "a.b/c"}, true},
		{"a%2Fb/c%2fd", address{"a/b", "c/d"}, true},
		{"ex/100%", address{"ex", "100%"}, true},
		{"ex/{kind}", address{"ex", "{kind}"}, true}, // RabbitMQ takes any name
		{"ex/{kind}." + long, address{"ex", "{kind}." + long}, false},
		{"", address{}, false},
		{"/", address{}, false},
		{"orders", address{}, false},
		{long + "/k", address{long, "k"}, false},
		{"ex/" + long, address{"ex", long}, false},
		{"/" + long, address{"", long}, false},
		{"ex/\xff", address{"ex", "\xff"}, false},
	} {
		if err := s.CheckAddress(c.text); (err == nil) != c.ok {
			t.Errorf("CheckAddress(%.40q): got %v, want ok %v", c.text, err, c.ok)
		} else if err != nil && !strings.Contains(err.Error(), "address") {
			t.Errorf("CheckAddress(%.40q): %v", c.text, err)
		}
		if got, _ := parseAddress(c.text); got != c.want {
			t.Errorf("parseAddress(%.40q): got %.80v, want %.80v", c.text, got, c.want)
		}
	}
}

// A node that failed is passed over while others didn't; when all failed it's tried again in turn.
func TestNodesInTurn(t *testing.T) {
	t.Parallel()
	d := newDialer("rabbitmq", make([]endpoint, 3), 1, nil)
	d.next = 0
	picks := func(n int) (got []int) {
		for range n {
			got = append(got, d.pick())
		}
		return got
	}
	if got := fmt.Sprint(picks(4)); got != "[0 1 2 0]" {
		t.Errorf("all good: got %v", got)
	}
	d.mark(1, time.Now())
	if got := fmt.Sprint(picks(4)); got != "[2 0 2 0]" {
		t.Errorf("1 failed: got %v", got)
	}
	d.mark(0, time.Now())
	d.mark(2, time.Now())
	if got := fmt.Sprint(picks(4)); got != "[1 2 0 1]" {
		t.Errorf("all failed: got %v", got)
	}
	d.mark(2, time.Now().Add(-2*avoidance))
	if got := fmt.Sprint(picks(2)); got != "[2 2]" {
		t.Errorf("2 failed long ago: got %v", got)
	}
}
