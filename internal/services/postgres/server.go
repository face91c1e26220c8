package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/process"
)

// startLimit bounds initdb and the start of the server, not the download.
const startLimit = 3 * time.Minute

// Options say what to start; the zero value works.
type Options struct {
	Version  string            // Version or Oldest; default Version
	Cache    string            // folder for downloads and data; default host.CacheDir
	Settings map[string]string // server settings beside Postgres's own defaults; default none
	Logger   *slog.Logger      // gets the progress of the download; default silent
}

// Server is a private Postgres server.
type Server struct {
	URL string // of the database postgres, as a superuser; stays the same across Down and Up

	folder   *host.Folder
	user     *host.User
	port     int
	password string
	bin      string
	server   *process.Server
}

// Start starts a server and waits until it answers. Cancelling ctx ends a start, not a server that has started:
// Stop does that.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
	defer cancel()
	if err := s.initialize(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	if err := s.Up(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func prepare(ctx context.Context, o Options) (*Server, error) {
	s := &Server{user: host.Unprivileged(), password: rand.Text()}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = Version
	}
	if o.Cache == "" {
		dir, err := host.CacheDir(s.user)
		if err != nil {
			return nil, fmt.Errorf("start Postgres: %w", err)
		}
		o.Cache = dir
	}
	var err error
	if s.bin, err = binaries(ctx, o.Cache, o.Version, o.Logger); err != nil {
		return nil, err
	}
	if s.port, err = host.Port(o.Cache); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	if s.folder, err = host.NewFolder(ctx, o.Cache, "postgres", s.user); err != nil {
		host.ReleasePort(s.port)
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	s.URL = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", s.password, s.port)
	s.server = &process.Server{
		Command: s.postgres(o.Settings), Ready: s.ping,
		Orderly: syscall.SIGINT, Crash: syscall.SIGQUIT, // Postgres: disconnect clients, or drop everything
	}
	return s, nil
}

// initialize makes the data folder.
func (s *Server) initialize(ctx context.Context) error {
	secret := filepath.Join(s.folder.Path, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return fmt.Errorf("write the password for initdb: %w", err)
	}
	if err := s.user.Own(secret); err != nil {
		return err
	}
	c := s.command("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "scram-sha-256",
		"--pwfile", secret, "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	if err := process.Run(ctx, c); err != nil {
		return err
	}
	return os.Remove(secret)
}

// Up starts the server again after Down or Kill, on its old address and data.
func (s *Server) Up(ctx context.Context) error { return s.server.Up(ctx) }

// Down stops the server as an operator would, with clients cut off, and keeps its data.
func (s *Server) Down() error { return s.server.Down() }

// Kill stops the server as a crash would, and keeps its data.
func (s *Server) Kill() error { return s.server.Kill() }

// Stop ends the server and removes its data. It may be called twice.
func (s *Server) Stop() error {
	// The data goes away, so nothing is gained by a checkpoint.
	err := s.server.Kill()
	host.ReleasePort(s.port)
	return errors.Join(err, s.folder.Remove())
}

// Log returns the last lines of what the server wrote.
func (s *Server) Log() string { return s.server.Log() }

// postgres is the command of the server itself.
func (s *Server) postgres(settings map[string]string) process.Command {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	c := s.command("postgres", args...)
	c.Death = syscall.SIGQUIT // so that it ends its own children as well
	return c
}

func (s *Server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

func (s *Server) command(program string, args ...string) process.Command {
	return process.Command{
		Name: program, Path: filepath.Join(s.bin, "bin", program), Args: args,
		Dir: s.folder.Path, User: s.user, Log: s.logFile(),
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.folder.Path, "TMPDIR=" + s.folder.Path, "LC_ALL=C", "TZ=UTC"},
	}
}

func (s *Server) data() string    { return filepath.Join(s.folder.Path, "data") }
func (s *Server) logFile() string { return filepath.Join(s.folder.Path, "log") }
