package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jobrelay/relay/internal/services/container"
	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/process"
)

// startLimit bounds the start of one server, downloads aside; a machine whose cores are all busy needs a good part of it.
const startLimit = 5 * time.Minute

// Env is what the servers of one machine share.
type Env struct {
	Cache    string       // see host.CacheDir
	User     *host.User   // whom servers run as
	Log      *slog.Logger // progress of downloads and installations
	Docker   bool         // run servers as containers, see package container; default as the machine offers
	Optimize bool         // servers run at their full speed and start slowly: for benchmarks; default false
}

// NewEnv finds the cache folder, the user and whether there is a container engine.
func NewEnv(ctx context.Context, log *slog.Logger) (*Env, error) {
	user := host.Unprivileged()
	cache, err := host.CacheDir(user)
	if err != nil {
		return nil, err
	}
	docker, err := container.Available(ctx)
	if err != nil {
		return nil, err
	}
	return &Env{Cache: cache, User: user, Log: log, Docker: docker}, nil
}

// Server is what every server can do: as a process or as a container.
type Server struct {
	runner
	env    *Env
	folder *host.Folder
	ports  []int
}

// runner is a process.Server or a container.Server.
type runner interface {
	Up(context.Context) error
	Down() error
	Kill() error
	Log() string
}

// image is how a server runs as a container; the rest is as for the process.
type image struct {
	name       string
	entrypoint string
	args       []string
	addrs      []string // what it publishes
}

// newServer makes the folder and reserves the ports of a server.
func (e *Env) newServer(ctx context.Context, name string, ports int) (*Server, error) {
	folder, err := host.NewFolder(ctx, e.Cache, name, e.User)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s := &Server{env: e, folder: folder}
	for range ports {
		port, err := host.Port(e.Cache)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), s.Stop())
		}
		s.ports = append(s.ports, port)
	}
	return s, nil
}

// Stop ends the server and removes its data. It may be called twice.
func (s *Server) Stop() error {
	var err error
	if s.runner != nil { // else it has never been started
		err = s.Kill()
	}
	if c, ok := s.runner.(*container.Server); ok {
		err = errors.Join(err, c.Remove())
	}
	host.ReleasePort(s.ports...)
	return errors.Join(err, s.folder.Remove())
}

// start brings the server up for the first time: as the process, or as the image with the process's environment.
func (s *Server) start(ctx context.Context, c process.Command, i image, ready func(context.Context) error) error {
	s.runner = &process.Server{Command: c, Ready: ready}
	if s.env.Docker {
		contained := s.container(i)
		contained.Env, contained.Ready = c.Env[environment:], ready
		s.runner = contained
	}
	return s.Up(ctx)
}

func (s *Server) container(i image) *container.Server {
	return &container.Server{Image: i.name, Entrypoint: i.entrypoint, Args: i.args, User: s.env.User, Folder: s.folder.Path, Publish: i.addrs}
}

// write puts a file of the server's user into the folder.
func (s *Server) write(name, text string) error {
	path := s.path(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return s.env.User.Own(path)
}

func (s *Server) path(name string) string { return filepath.Join(s.folder.Path, name) }

func (s *Server) addr(i int) string { return address(s.ports[i]) }

// bind is where the server itself listens: inside a container the loopback address would reach nobody, and the published
// port is on 127.0.0.1 in any case.
func (s *Server) bind(i int) string {
	if s.env.Docker {
		return net.JoinHostPort("0.0.0.0", strconv.Itoa(s.ports[i]))
	}
	return s.addr(i)
}

func (s *Server) bindHost() string {
	host, _, _ := net.SplitHostPort(s.bind(0))
	return host
}

// environment is how many variables every command has; those after them are the server's own.
const environment = 5

// command runs a program in the server's folder, as its user, with nothing of our environment but the path.
func (s *Server) command(name, path string, args ...string) process.Command {
	return process.Command{
		Name: name, Path: path, Args: args, Dir: s.folder.Path, User: s.env.User, Log: s.path("log"),
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.folder.Path, "TMPDIR=" + s.folder.Path, "LANG=C.UTF-8", "TZ=UTC"},
	}
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// reachable tells whether something listens on every address.
func reachable(ctx context.Context, addrs ...string) error {
	for _, addr := range addrs {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
}
