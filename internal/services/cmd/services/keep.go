package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/process"
	"github.com/jobrelay/relay/internal/services/stack"
)

// kept is the folder of the one set of services that `up` keeps: lock (held by the process that owns the set),
// pid, env and log.
type kept string

func keptFolder() (kept, error) {
	cache, err := host.CacheDir(host.Unprivileged())
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "up")
	return kept(dir), host.OpenDir(dir)
}

func (k kept) path(name string) string { return filepath.Join(string(k), name) }

// held tells whether a process owns a set.
func (k kept) held() (bool, error) {
	lock, free, err := host.TryAcquire(k.path("lock"))
	lock.Release()
	return !free, err
}

// up starts a process that owns a set of services and outlives us, unless there is one, and prints the exports.
func up(log *slog.Logger, signals <-chan os.Signal, o stack.Options, out io.Writer) error {
	k, err := keptFolder()
	if err != nil {
		return err
	}
	guard, err := host.Acquire(context.Background(), k.path("starting"))
	if err != nil {
		return err
	}
	defer guard.Release()
	running, err := k.held()
	if err != nil {
		return err
	}
	if running {
		log.Info("services are running already")
	} else if err := k.spawn(signals, o); err != nil {
		return err
	}
	env, err := os.ReadFile(k.path("env"))
	if err != nil {
		return fmt.Errorf("read what the services export: %w", err)
	}
	_, err = out.Write(env)
	return err
}

// spawn starts the owner and waits until it has written the exports.
func (k kept) spawn(signals <-chan os.Signal, o stack.Options) error {
	for _, name := range []string{"env", "log"} {
		if err := os.Remove(k.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear the last set's files: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the services: %w", err)
	}
	logFile, err := os.Create(k.path("log"))
	if err != nil {
		return fmt.Errorf("start the services: %w", err)
	}
	defer logFile.Close()
	owner := exec.Command(self, "hold", "--only", strings.Join(o.Only, ","), "--optimize="+strconv.FormatBool(o.Optimize), string(k))
	owner.Stderr, owner.Dir = logFile, string(k)
	owner.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := owner.Start(); err != nil {
		return fmt.Errorf("start the services: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- owner.Wait() }()
	for {
		if _, err := os.Stat(k.path("env")); err == nil {
			return nil
		}
		select {
		case err := <-done:
			return fmt.Errorf("start the services: %w\n%s", err, process.Tail(k.path("log")))
		case s := <-signals:
			owner.Process.Signal(syscall.SIGTERM)
			<-done
			return fmt.Errorf("start the services: %s", s)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// hold owns a set of services until a signal comes.
func hold(log *slog.Logger, signals <-chan os.Signal, o stack.Options, dir string) error {
	k := kept(dir)
	lock, free, err := host.TryAcquire(k.path("lock"))
	if err != nil || !free {
		return errors.Join(err, errors.New("another process owns the services"))
	}
	defer lock.Release()
	if err := os.WriteFile(k.path("pid"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("write our process id: %w", err)
	}
	services, caught, err := start(log, signals, o)
	if err != nil || caught != nil {
		return err
	}
	if err := k.export(services.Env()); err != nil {
		return errors.Join(err, services.Stop())
	}
	<-signals
	return errors.Join(os.Remove(k.path("env")), services.Stop())
}

// export writes the shell commands that set the variables; the file appears whole.
func (k kept) export(env []stack.Variable) error {
	var b strings.Builder
	for _, v := range env {
		fmt.Fprintf(&b, "export %s='%s'\n", v.Name, v.Value)
	}
	if err := os.WriteFile(k.path("env.part"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the exports: %w", err)
	}
	return os.Rename(k.path("env.part"), k.path("env"))
}

// stopLimit is longer than any service may take to stop.
const stopLimit = time.Minute

// down ends the owner of the set, which stops the services, and waits for it.
func down(log *slog.Logger) error {
	k, err := keptFolder()
	if err != nil {
		return err
	}
	running, err := k.held()
	if err != nil {
		return err
	}
	if !running {
		log.Info("no services are running")
		return nil
	}
	text, err := os.ReadFile(k.path("pid"))
	if err != nil {
		return fmt.Errorf("stop the services: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("stop the services: %s holds no process id", k.path("pid"))
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the services: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopLimit, fmt.Errorf("still running after %s", stopLimit))
	defer cancel()
	lock, err := host.Acquire(ctx, k.path("lock"))
	if err != nil {
		return fmt.Errorf("stop the services: %w", err)
	}
	lock.Release()
	log.Info("services are stopped")
	return nil
}
