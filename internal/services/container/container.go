// Package container runs servers as containers, for machines where Docker answers: then no Java, Maven or RabbitMQ need
// be installed. A server gets the same configuration, ports and folder as it would have as an ordinary process.
package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
)

// label marks our containers with their state folder, so that those of a killed process can be told and removed.
const label = "relay.test.folder"

// Choice names the environment variable that decides: docker, native, or unset for docker where it answers.
const Choice = "RELAY_TEST_ENGINE"

// Available tells whether to run servers as containers.
func Available(ctx context.Context) (bool, error) {
	switch choice := os.Getenv(Choice); choice {
	case "native":
		return false, nil
	case "", "docker":
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := docker(ctx, "info", "--format", "{{.ServerVersion}}")
		if err != nil && choice == "docker" {
			return false, fmt.Errorf("%s=docker: %w", Choice, err)
		}
		return err == nil, nil
	default:
		return false, fmt.Errorf("%s=%s: want docker or native", Choice, choice)
	}
}

// Server is a container that can be stopped and started again, on the same data and address.
type Server struct {
	Image      string
	Entrypoint string   // default: the image's
	Args       []string // after the entrypoint
	Env        []string
	User       *host.User // nil: ourselves
	Folder     string     // its state, at the same path inside
	Publish    []string   // addresses of this machine (host:port), under the same port inside
	Ready      func(context.Context) error

	mu      sync.Mutex
	created bool
	up      bool
}

// Name is the container's name.
func (s *Server) Name() string { return "relay-" + filepath.Base(s.Folder) }

// Run runs one command in the image to its end, with the server's folder.
func (s *Server) Run(ctx context.Context, entrypoint string, args ...string) error {
	line := append([]string{"run", "--rm", "--network", "none", "--entrypoint", entrypoint}, s.options()...)
	_, err := docker(ctx, append(append(line, s.Image), args...)...)
	return err
}

// Up starts the server and waits until it answers; it does nothing if it is up.
func (s *Server) Up(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		return nil
	}
	line := []string{"start", s.Name()}
	if !s.created {
		line = s.create()
	}
	s.created = true // also when this fails: a container may exist
	if _, err := docker(ctx, line...); err != nil {
		return err
	}
	s.up = true
	return s.await(ctx)
}

func (s *Server) create() []string {
	line := append([]string{"run", "--detach", "--name", s.Name()}, s.options()...)
	for _, addr := range s.Publish {
		_, port, _ := net.SplitHostPort(addr)
		line = append(line, "--publish", addr+":"+port)
	}
	if s.Entrypoint != "" {
		line = append(line, "--entrypoint", s.Entrypoint)
	}
	return append(append(line, s.Image), s.Args...)
}

func (s *Server) options() []string {
	uid, gid := os.Getuid(), os.Getgid()
	if s.User != nil {
		uid, gid = int(s.User.UID), int(s.User.GID)
	}
	line := []string{
		"--label", label + "=" + s.Folder, "--user", strconv.Itoa(uid) + ":" + strconv.Itoa(gid),
		"--volume", s.Folder + ":" + s.Folder, "--workdir", s.Folder, "--env", "HOME=" + s.Folder,
	}
	for _, v := range s.Env {
		line = append(line, "--env", v)
	}
	return line
}

func (s *Server) await(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		last := s.Ready(attempt)
		cancel()
		if last == nil {
			return nil
		}
		state, err := docker(ctx, "inspect", "--format", "{{.State.Running}}", s.Name())
		if err == nil && strings.TrimSpace(state) != "true" {
			return fmt.Errorf("%s ended while it started\n%s", s.Image, s.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come up: %w; last: %w\n%s", s.Image, context.Cause(ctx), last, s.Log())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Down stops the server as an operator would.
func (s *Server) Down() error { return s.end("stop", "--time", "30") }

// Kill stops the server as a crash would.
func (s *Server) Kill() error { return s.end("kill") }

func (s *Server) end(line ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return nil
	}
	s.up = false
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := docker(ctx, append(line, s.Name())...)
	return err
}

// Remove ends the server and removes the container. It may be called twice.
func (s *Server) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.created {
		return nil
	}
	s.created, s.up = false, false
	return remove(s.Name())
}

// Log returns the last lines of what the server wrote.
func (s *Server) Log() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "logs", "--tail", "40", s.Name()).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("(no log: %v)\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Sweep removes containers whose state folder has gone with a killed process.
func Sweep(ctx context.Context) error {
	out, err := docker(ctx, "ps", "--all", "--filter", "label="+label, "--format", `{{.Names}} {{.Label "`+label+`"}}`)
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(out) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := os.Stat(folder); folder != "" && errors.Is(err, os.ErrNotExist) {
			errs = append(errs, remove(name))
		}
	}
	return errors.Join(errs...)
}

func remove(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := docker(ctx, "rm", "--force", "--volumes", name)
	return err
}

// docker runs the client and returns what it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}
