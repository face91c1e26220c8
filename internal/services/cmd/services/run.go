package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/services/stack"
)

// interrupted is the status of a command that we ended because of a signal, as shells write it.
func interrupted(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

// run starts the services, runs the command and stops the services, whatever happens between.
func run(log *slog.Logger, signals <-chan os.Signal, o stack.Options, args []string) (int, error) {
	services, caught, err := start(log, signals, o)
	if caught != nil {
		return interrupted(caught), err
	}
	if err != nil {
		return 1, err
	}
	code, err := execute(log, signals, services.Env(), args)
	begin := time.Now()
	if stopErr := services.Stop(); stopErr != nil {
		return max(code, 1), errors.Join(err, stopErr)
	}
	log.Info("services are stopped", "took", time.Since(begin).Round(time.Millisecond))
	return code, err
}

// start starts the services; a signal ends the start, and is returned.
func start(log *slog.Logger, signals <-chan os.Signal, o stack.Options) (*stack.Stack, os.Signal, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	type result struct {
		services *stack.Stack
		err      error
	}
	done := make(chan result, 1)
	go func() {
		services, err := stack.Start(ctx, log, o)
		done <- result{services, err}
	}()
	select {
	case r := <-done:
		return r.services, nil, r.err
	case caught := <-signals:
		cancel(fmt.Errorf("%s", caught))
		r := <-done
		if r.services != nil {
			return nil, caught, r.services.Stop()
		}
		return nil, caught, r.err
	}
}

// execute runs the command in a process group of its own and passes signals on to all of it: `go test` alone would
// die of SIGTERM and leave its test binaries running. The command reads nothing from the terminal.
func execute(log *slog.Logger, signals <-chan os.Signal, env []stack.Variable, args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, os.Environ()
	for _, v := range env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	group := -cmd.Process.Pid
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var caught os.Signal
	for {
		select {
		case s := <-signals:
			if caught != nil {
				log.Info("a second signal: killing the command")
				s = syscall.SIGKILL
			}
			caught = s
			syscall.Kill(group, s.(syscall.Signal))
		case err := <-done:
			syscall.Kill(group, syscall.SIGKILL) // what the command left behind
			return exitCode(err, caught)
		}
	}
}

func exitCode(err error, caught os.Signal) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil && caught != nil:
		return interrupted(caught), nil
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 1, err
	case exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	}
	return interrupted(exit.Sys().(syscall.WaitStatus).Signal()), nil
}
