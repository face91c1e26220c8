// Command services starts the real Postgres, Kafka, RabbitMQ and SQS servers that relay's tests run against.
//
//	services run -- COMMAND ARG…   start everything, run the command with RELAY_TEST_* set, stop everything
//	services up                    start everything and keep it; prints the exports; finds a set that runs already
//	services down                  stop what up started
//
// Flags of run and up: --only NAME,… starts only those: postgres, postgres-old, kafka, rabbitmq, sqs; --optimize
// lets brokers start slowly and run at full speed, for benchmarks.
// The exit status of run is the command's, or 1 when a service didn't come up.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jobrelay/relay/internal/services/stack"
)

const usage = "usage: services run [--only NAME,…] [--optimize] -- COMMAND ARG… | up [--only NAME,…] [--optimize] | down"

var errUsage = errors.New(usage)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: short}))
	code, err := command(log, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
	}
	os.Exit(code)
}

func command(log *slog.Logger, args []string) (int, error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if len(args) == 0 {
		return 2, errUsage
	}
	o, rest, err := parse(args[1:])
	if err != nil {
		return 2, err
	}
	switch verb := args[0]; {
	case verb == "run" && len(rest) > 0 && args[len(args)-len(rest)-1] == "--":
		return run(log, signals, o, rest)
	case verb == "up" && len(rest) == 0:
		return status(up(log, signals, o, os.Stdout))
	case verb == "down" && len(args) == 1:
		return status(down(log))
	case verb == "hold" && len(rest) == 1:
		return status(hold(log, signals, o, rest[0]))
	}
	return 2, errUsage
}

// parse takes the flags off.
func parse(args []string) (o stack.Options, rest []string, err error) {
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	only := flags.String("only", "", "")
	flags.BoolVar(&o.Optimize, "optimize", false, "")
	if err := flags.Parse(args); err != nil {
		return o, nil, fmt.Errorf("%w\n%w", err, errUsage)
	}
	if *only == "" {
		return o, flags.Args(), nil
	}
	o.Only = strings.Split(*only, ",")
	for _, name := range o.Only {
		if !slices.Contains(stack.Names, name) {
			return o, nil, fmt.Errorf("no service is called %q: there are %s", name, strings.Join(stack.Names, ", "))
		}
	}
	return o, flags.Args(), nil
}

func status(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// short leaves out what a person at a terminal doesn't need.
func short(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}
