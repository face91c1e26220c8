package postgres_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerStartsRestartsAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Postgres; -short leaves it out")
	}
	t.Parallel()
	cache, err := host.CacheDir(host.Unprivileged())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server, err := postgres.Start(t.Context(), postgres.Options{Cache: cache, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	exec(t, server, "CREATE TABLE kept (n int)")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Up(t.Context()); err != nil {
		t.Fatalf("start after a crash: %v", err)
	}
	exec(t, server, "INSERT INTO kept VALUES (1)")
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	if err := server.Up(t.Context()); err != nil {
		t.Fatalf("start after a stop: %v", err)
	}
	exec(t, server, "SELECT * FROM kept")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), server.URL); err == nil {
		t.Error("the server still answers after Stop")
	}
}

func exec(t *testing.T, server *postgres.Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatalf("connect: %v\n%s", err, server.Log())
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

var _ = fs.ErrNotExist
var _ = os.Getpid
var _ = filepath.Join
var _ = syscall.SIGKILL
var _ = time.Second
