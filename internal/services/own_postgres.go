package services

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/native"
)

// OwnPostgresWithTLS starts a Postgres for this test that takes encrypted connections only. ca is the file (PEM) of its
// certificate's authority, URL has no sslmode. It can't be started again: its own readiness check isn't encrypted.
func OwnPostgresWithTLS(t testing.TB) (o *Own, ca string) {
	t.Helper()
	o = OwnPostgres(t)
	certs, err := native.NewCertificates()
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(certs.Authority), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"server.crt": certs.Server, "server.key": certs.ServerKey, "pg_hba.conf": "hostssl all all 127.0.0.1/32 scram-sha-256\n",
	} {
		o.Write(name, text)
	}
	o.exec("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
	o.URL = strings.Replace(o.URL, "?sslmode=disable", "", 1)
	return o, ca
}

// Write writes a file into an own Postgres's data folder, as the server's user.
func (o *Own) Write(name, text string) {
	o.t.Helper()
	if o.data == "" {
		o.data = o.show("data_directory")
	}
	path := filepath.Join(o.data, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := host.Unprivileged().Own(path); err != nil {
		o.t.Fatal(err)
	}
}

func (o *Own) show(setting string) (value string) {
	o.t.Helper()
	o.session(func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW "+setting).Scan(&value)
	})
	return value
}

func (o *Own) exec(statements ...string) {
	o.t.Helper()
	o.session(func(ctx context.Context, conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Own) session(do func(context.Context, *pgx.Conn) error) {
	o.t.Helper()
	ctx := o.t.Context()
	conn, err := pgx.Connect(ctx, o.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := do(ctx, conn); err != nil {
		o.t.Fatal(err)
	}
}
