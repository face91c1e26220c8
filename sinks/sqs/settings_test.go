package sqs

import (
	"strings"
	"testing"

	"github.com/jobrelay/relay/config"
)

func TestB30Settings(t *testing.T) {
	t.Parallel()
	got := *Type().Settings().(*Settings)
	if problems := config.Decode(config.Environ{}, "RELAY_SQS_", &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	if due := (Settings{MaxBytes: defaultMaxBytes, Parallel: defaultParallel}); got != due {
		t.Errorf("defaults: got %+v, want %+v", got, due)
	}
	env := config.Environ{"RELAY_SQS_ENDPOINT": "http://localhost:9324", "RELAY_SQS_REGION": "eu-west-1", "RELAY_SQS_MAX_BYTES": "256KiB", "RELAY_SQS_PARALLEL": "4"}
	if problems := config.Decode(env, "RELAY_SQS_", &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	if due := (Settings{"http://localhost:9324", "eu-west-1", 262_144, 4}); got != due {
		t.Errorf("got %+v, want %+v", got, due)
	}
	for name, value := range map[string]string{"ENDPOINT": "http://user:password@localhost:9324", "REGION": "EU west"} {
		problems := config.Decode(config.Environ{"RELAY_SQS_" + name: value}, "RELAY_SQS_", &Settings{})
		if len(problems) != 1 || !strings.Contains(problems.Error(), "RELAY_SQS_"+name) || strings.Contains(problems.Error(), "password") {
			t.Errorf("%s=%s: got %q, want one problem that names it, and no password", name, value, problems)
		}
	}
	for name, value := range map[string]string{"ENDPOINT": "localhost:9324", "REGION": "EU west", "MAX_BYTES": "2MiB", "PARALLEL": "0"} {
		problems := config.Decode(config.Environ{"RELAY_SQS_" + name: value}, "RELAY_SQS_", &Settings{})
		if len(problems) != 1 || !strings.Contains(problems.Error(), "RELAY_SQS_"+name) {
			t.Errorf("%s=%s: got %q, want one problem that names it", name, value, problems)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"orders": true, "Orders_2-x": true, "orders.fifo": true, strings.Repeat("q", 80): true,
		"https://sqs.eu-west-1.amazonaws.com/000000000000/orders": true,
		"http://localhost:9324/000000000000/orders.fifo":          true,
		"": false, "a b": false, "orders.fifo.x": false, ".fifo": false, strings.Repeat("q", 81): false, "a.b": false, "a/b": false, "{": false, "{kind}": false, "orders-{x y/ä}": false,
		"https://": false, "https://host": false, "https://host/": false, "https://host/1/a b": false, "ftp://host/1/q": false, "ключ": false,
		"https://user:password@host/1/q": false, "https://host/1/{x y}": false,
	} {
		if err := Type().Settings().CheckAddress(address); (err == nil) != ok {
			t.Errorf("%q: got %v, want it to be fine: %v", address, err, ok)
		}
	}
}
