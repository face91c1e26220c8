package rabbitmq

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/sinks"
)

// user makes one with the right to write to what matches, and returns the node's URL with its login.
func user(t *testing.T, base, write string) (text, who, password string) {
	t.Helper()
	who, password = "u-"+rand.Text()[:8], "p@/ :%,"+rand.Text()
	services.RabbitMQCtl(t, "add_user", who, password)
	t.Cleanup(func() { services.RabbitMQCtl(t, "delete_user", who) })
	services.RabbitMQCtl(t, "set_permissions", who, "^$", write, "^$")
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(who, password)
	return u.String(), who, password
}

// A user that may write to one exchange only, by some keys: refusals are the address's alone, and Check sees them.
func TestPermissions(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	q, allowed, refused := b.queue(nil), b.exchange("topic", nil), b.exchange("direct", nil)
	b.bind(q, "#", allowed)
	text, who, _ := user(t, b.url, "^"+allowed+"$")
	services.RabbitMQCtl(t, "set_topic_permissions", who, allowed, "^open", "^$")
	s := open(t, text, one)

	addresses := []string{allowed + "/open.1", refused + "/k", allowed + "/secret", "/" + q}
	wantAll(t, publish(t, s, messages(1, addresses[0]), patience), sinks.Accepted, 0)
	before := link(t, s)
	for round := range 2 {
		batch := messages(80, "")
		for i := range batch {
			batch[i].Address = addresses[i%4]
		}
		for i, r := range publish(t, s, batch, patience) {
			switch i % 4 {
			case 0:
				if r.Outcome != sinks.Unknown || round > 0 {
					want(t, r, sinks.Accepted, 0)
				}
			default:
				if r.Outcome == sinks.Unknown && i%4 == 2 && round == 0 {
					continue // the exchange is proved, the key isn't: the first time the window is in doubt
				}
				want(t, r, sinks.Unavailable, sinks.ScopeAddress, "403 ACCESS_REFUSED")
			}
		}
	}
	among := messages(50, addresses[0])
	among[25].Address = addresses[2]
	for i, r := range publish(t, s, among, patience) { // refused once, it goes alone: the neighbours notice nothing any more
		if i == 25 {
			want(t, r, sinks.Unavailable, sinks.ScopeAddress, "403")
		} else {
			want(t, r, sinks.Accepted, 0)
		}
	}
	if link(t, s) != before {
		t.Errorf("a refusal cost the connection")
	}
	if got := len(b.read(q, 90)); got != 90 {
		t.Errorf("%d messages arrived, want 90", got)
	}
	for i, address := range addresses {
		err := check(t, s, address)
		if (err == nil) != (i == 0) {
			t.Errorf("Check(%q): got %v", address, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "403 ACCESS_REFUSED") || !strings.Contains(err.Error(), address)) {
			t.Errorf("Check(%q): the error should name the address and the reason: %v", address, err)
		}
	}
	for _, wide := range []string{"", allowed, refused} { // whether an exchange is there doesn't hang on the right to write to it
		if err := check(t, s, wide); err != nil {
			t.Errorf("Check(%q): %v", wide, err)
		}
	}
	if got := len(b.read(q, 0)); got != 0 {
		t.Errorf("Check left %d messages behind", got)
	}
}

// A login that is refused is an outage of the whole sink, and tells no password.
func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	base := services.RabbitMQ(t)
	good, who, password := user(t, base, ".*")
	wrong, err := url.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword(who, password+"x")
	vhost := *wrong
	vhost.User, vhost.Path = url.UserPassword(who, password), "/nowhere"
	for _, c := range []struct{ name, url, say string }{
		{"password", wrong.String(), "403 username or password not allowed"},
		{"vhost", vhost.String(), "530 NOT_ALLOWED - vhost nowhere not found"},
		{"away", at(t, good, "127.0.0.1:1"), "connection refused"},
		{"host", at(t, good, "host.invalid:5672"), "host.invalid"},
		{"TLS where there is none", "amqps" + strings.TrimPrefix(good, "amqp"), "TLS: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, c.url, nil)
			results := publish(t, s, messages(3, "/q"), patience)
			wantAll(t, results, sinks.Unavailable, sinks.ScopeSink, c.say)
			checked := check(t, s, "/q")
			if checked == nil || !strings.Contains(checked.Error(), c.say) {
				t.Errorf("Check: got %v, want %q", checked, c.say)
			}
			for _, err := range []error{results[0].Err, checked} {
				if text := err.Error(); strings.Contains(text, password) || strings.Contains(text, url.QueryEscape(password)) {
					t.Errorf("the password is in the error: %v", err)
				}
			}
		})
	}
	s := open(t, good, nil)
	if err := check(t, s, ""); err != nil {
		t.Errorf("Check with the right login: %v", err)
	}
}

// amqps against the node's own certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	text, ca := services.RabbitMQWithTLS(t)
	b := broker{t, services.RabbitMQ(t)}
	q := b.queue(nil)
	for name, env := range map[string]map[string]string{"TLS_CA": {"TLS_CA": ca}, "cacertfile": {"URL": text + "?cacertfile=" + url.QueryEscape(ca)}} {
		s := open(t, text, env)
		wantAll(t, publish(t, s, messages(1000, "/"+q), patience), sinks.Accepted, 0)
		if err := check(t, s, "/"+q); err != nil {
			t.Errorf("%s: Check: %v", name, err)
		}
		if got := len(b.ids(q, 1000)); got != 1000 {
			t.Errorf("%s: %d messages arrived, want 1000", name, got)
		}
	}
	s := open(t, text, nil) // the system's authorities don't vouch for it
	wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Unavailable, sinks.ScopeSink, "TLS: ", "certificate")
	s = open(t, text+"?server_name_indication=other.example", map[string]string{"TLS_CA": ca})
	wantAll(t, publish(t, s, messages(1, "/"+q), patience), sinks.Unavailable, sinks.ScopeSink, "other.example")
}

// Of several nodes one is away: at most one batch notices.
func TestSeveralNodes(t *testing.T) {
	t.Parallel()
	b := broker{t, services.RabbitMQ(t)}
	q := b.queue(nil)
	s := open(t, at(t, b.url, "127.0.0.1:1")+", "+b.url+","+at(t, b.url, "127.0.0.1:2"), nil)
	failed := 0
	for range 10 {
		if r := publish(t, s, messages(5, "/"+q), patience); r[0].Outcome != sinks.Accepted {
			wantAll(t, r, sinks.Unavailable, sinks.ScopeSink, "connection refused")
			failed++
		}
	}
	if failed > 2 { // each of the nodes that are away once
		t.Errorf("%d of 10 batches met a node that is away, want 2 at most", failed)
	}
}

// The library's own recovery gives confirms to the wrong messages: it must never be on.
func TestRecoveryIsOff(t *testing.T) {
	t.Parallel()
	if c := libraryConfig("rabbitmq", &endpoint{}); c.Recovery != nil {
		t.Errorf("amqp.Config.Recovery is %+v, want nil", c.Recovery)
	}
	s := open(t, services.RabbitMQ(t), one)
	publish(t, s, messages(1, "/"+name(t)), patience)
	g := <-s.publishers.slots
	defer func() { s.publishers.slots <- g }()
	if g.link.Config.Recovery != nil || g.link.IsRecoveryEnabled() {
		t.Errorf("the connection has recovery on")
	}
	if props := g.link.Config.Properties; props["connection_name"] != "relay rabbitmq" {
		t.Errorf("connection name: got %v", props["connection_name"])
	}
}
