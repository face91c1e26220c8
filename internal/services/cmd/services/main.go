// Command services starts the real Postgres, Kafka, RabbitMQ and SQS servers that relay's tests run against.
//
//	services run -- COMMAND ARG…   start everything, run the command with RELAY_TEST_* set, stop everything
//	services up                    start everything and keep it; prints the exports; finds a set that runs already
//	services down                  stop what up started
//
// The exit status of run is the command's, or 1 when a service didn't come up.
package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

const usage = "usage: services run -- COMMAND ARG… | up | down"

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
	switch {
	case len(args) > 2 && args[0] == "run" && args[1] == "--":
		return run(log, signals, args[2:])
	case len(args) == 1 && args[0] == "up":
		return status(up(log, signals, os.Stdout))
	case len(args) == 1 && args[0] == "down":
		return status(down(log))
	case len(args) == 2 && args[0] == "hold":
		return status(hold(log, signals, args[1]))
	}
	fmt.Fprintln(os.Stderr, usage)
	return 2, nil
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
