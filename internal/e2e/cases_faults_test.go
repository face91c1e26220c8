package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/testdb"
	"github.com/jobrelay/relay/migrations"
)

// later are places on each broker that don't exist yet: what a route calls them, and how they are made.
func later(t *testing.T) map[string]struct {
	to   string
	make func(context.Context) error
} {
	t.Helper()
	place := "later-" + name(t)
	return map[string]struct {
		to   string
		make func(context.Context) error
	}{
		"kafka": {"kafka:" + place, func(ctx context.Context) error {
			cl, err := kgo.NewClient(kgo.SeedBrokers(services.Kafka(t)))
			if err != nil {
				return err
			}
			defer cl.Close()
			_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, place)
			return err
		}},
		"rabbitmq": {"rabbitmq:" + place + "/k", func(context.Context) error {
			conn, err := amqp.Dial(services.RabbitMQ(t))
			if err != nil {
				return err
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(place, true, false, false, false, amqp.Table{"x-expires": int32(300_000)}); err != nil {
				return err
			}
			if err := ch.ExchangeDeclare(place, "topic", true, true, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(place, "#", place, false, nil)
		}},
		"sqs": {"sqs:" + place, func(ctx context.Context) error {
			cl := sqs.New(sqs.Options{BaseEndpoint: aws.String(services.SQS(t)), Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")})
			_, err := cl.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &place})
			return err
		}},
	}
}

// B14: half of the jobs go to a place that doesn't exist. The others are delivered meanwhile; these wait, with the reason
// in sight, lose no attempt, and are delivered when the place is there.
func TestB14PlaceComesLater(t *testing.T) {
	t.Parallel()
	for broker, place := range later(t) {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			db, all := testdb.New(t), onEveryBroker(t)
			p := start(t, db, all.env.with(settings{"ROUTES": routes("good", []string{all.outlets[broker].to}, "early", []string{place.to})}))
			s := newShop(t, db)
			s.trade(50, "good", "early")
			s.drained(generous, "good")
			eventually(t, "the place is known to be missing", func() error {
				if code, body := p.get("/readyz"); code != 200 || !strings.Contains(body, "degraded") || !strings.Contains(body, strings.TrimPrefix(place.to, broker+":")) {
					return fmt.Errorf("readyz: %d %s", code, body)
				}
				return nil
			})
			if up := p.metric("relay_destination_up", "destination="+place.to); up != 0 {
				t.Errorf("relay_destination_up: %v", up)
			}
			eventually(t, "what was tried is given back", func() error {
				if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE kind = 'early' AND status = 'ready' AND attempts = 0`); n != 50 {
					return fmt.Errorf("%d wait: %v", n, s.statuses("early"))
				}
				return nil
			})
			if err := place.make(context.Background()); err != nil {
				t.Fatal(err)
			}
			s.drained(generous, "early")
			if n := value[int](t, db, `SELECT max(attempts) FROM jobs`); n != 1 {
				t.Errorf("a job needed %d attempts", n)
			}
			if n := s.arrived(all.outlets[broker], "good"); n != 0 {
				t.Errorf("%d duplicates of the others", n)
			}
		})
	}
}

// B26: SIGTERM while a broker takes everything and answers nothing: the process ends in time, what was never sent is given
// back with its attempt, and the next relay sends all.
func TestB26TermWhileTheSinkHangs(t *testing.T) {
	t.Parallel()
	for broker, made := range map[string]struct {
		line   func(*testing.T) *line
		outlet func(*testing.T, string) outlet
	}{"kafka": {kafkaLine, kafkaOutlet}, "rabbitmq": {rabbitLine, rabbitOutlet}, "sqs": {sqsLine, sqsOutlet}} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			db, l := testdb.New(t), made.line(t)
			o := made.outlet(t, l.addr)
			env := o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "BATCH_SIZE": "20", "WORKERS": "1", "LEASE": "8s", "PUBLISH_TIMEOUT": "6s", "DRAIN_TIMEOUT": "4s"})
			p := start(t, db, env)
			s := newShop(t, db)
			s.trade(20, "a")
			s.drained(generous) // it is connected
			l.swallow()
			s.trade(100, "a")
			eventually(t, "it holds a batch", func() error {
				if n := s.statuses()["running"]; n == 0 {
					return fmt.Errorf("%v", s.statuses())
				}
				return nil
			})
			if code := p.terminate(4*time.Second + 15*time.Second); code != 0 && code != 1 {
				t.Errorf("exit code %d", code)
			}
			if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'ready' AND attempts = 0`); n < 80 {
				t.Errorf("%d jobs wait with all their attempts, want the 80 that weren't in hand", n)
			}
			l.heal()
			start(t, db, env)
			s.drained(generous)
			if n := s.arrived(o, "a"); n > 20 {
				t.Errorf("%d duplicates, one batch was on its way", n)
			}
		})
	}
}

// B26: SIGTERM while the database is away: the process ends in time and says that it gave up.
func TestB26TermWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := services.OwnPostgres(t)
	db := testdb.On(t, server.URL)
	db.Migrate(t, migrations.Options{})
	l := rabbitLine(t)
	o := rabbitOutlet(t, l.addr)
	env := o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "BATCH_SIZE": "20", "LEASE": "5s", "PUBLISH_TIMEOUT": "3s", "DRAIN_TIMEOUT": "4s"})
	p := start(t, db, env)
	s := newShop(t, db)
	l.delay(2 * time.Second)
	s.trade(100, "a")
	eventually(t, "it holds a batch", func() error {
		if got := s.statuses(); got["running"] == 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	server.Stop()
	if code := p.terminate(4*time.Second + 15*time.Second); code != 1 {
		t.Errorf("exit code: got %d, want 1: what it held couldn't be settled", code)
	}
	server.Start()
	db.Pool.Reset()
	l.heal()
	start(t, db, env)
	s.drained(generous)
	if n := s.arrived(o, "a"); n > 4*20 {
		t.Errorf("%d duplicates with four workers and batches of 20", n)
	}
}

// B27: every session of the relay is ended, again and again, while jobs flow; the one that listens as well. It goes on by
// itself, loses nothing, and neither floods the log nor stops to be alive.
func TestB27SessionsTerminated(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	o := kafkaOutlet(t, "")
	named := *db
	app := "r-" + db.Schema[max(0, len(db.Schema)-60):] // the shop's own connections have another name
	named.URL += "&application_name=" + app
	p := start(t, &named, o.settings.with(settings{"ROUTES": routes("a", []string{o.to}), "BATCH_SIZE": "20", "LEASE": "5s", "PUBLISH_TIMEOUT": "3s"}))
	s := newShop(t, db)
	stop := s.flow(100, "a")
	for range 5 {
		before := value[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'done'`)
		eventually(t, "its sessions are ended", func() error {
			if n := value[int](t, db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, app); n == 0 {
				return fmt.Errorf("none was found")
			}
			return nil
		})
		eventually(t, "it goes on", func() error {
			if n := value[int](t, db, `SELECT count(*) FROM jobs WHERE status = 'done'`); n < before+20 {
				return fmt.Errorf("%d are done, there were %d", n, before)
			}
			return nil
		})
		if code, _ := p.get("/healthz"); code != 200 {
			t.Errorf("healthz: %d", code)
		}
	}
	stop()
	s.drained(generous)
	if n := s.arrived(o, "a"); n > 5*4*20 {
		t.Errorf("%d duplicates with at most 80 jobs in flight at each of five cuts", n)
	}
	if n := strings.Count(p.output(), "\n"); n > 200 {
		t.Errorf("%d lines of log", n)
	}
	if code := p.terminate(generous); code != 0 {
		t.Errorf("exit code: %d", code)
	}
}
