package testdb

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bouncerINI is a PgBouncer whose clients need no password.
const bouncerINI = `[databases]
it = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = any
pool_mode = %s
default_pool_size = %d
unix_socket_dir =
ignore_startup_parameters = search_path,extra_float_digits
`

// Bouncer starts PgBouncer in transaction mode, with three sessions, in front of the test's database and returns its URL.
// The search_path isn't kept: name the schema.
func (db *DB) Bouncer(t testing.TB) (url string) {
	t.Helper()
	return db.bouncer(t, "transaction", 3)
}

// SessionBouncer is one in session mode, with ten.
func (db *DB) SessionBouncer(t testing.TB) (url string) {
	t.Helper()
	return db.bouncer(t, "session", 10)
}

func (db *DB) bouncer(t testing.TB, mode string, sessions int) (url string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(path); err != nil {
			t.Fatal("pgbouncer is not installed: install the package pgbouncer")
		}
	}
	dir, err := os.MkdirTemp("", "relay-bouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := db.Config
	port := freePort(t)
	server := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", at.Host, at.Port, at.Database, at.User)
	if at.Password != "" {
		server += " password='" + strings.ReplaceAll(at.Password, "'", "''") + "'"
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, fmt.Appendf(nil, bouncerINI, server, port, mode, sessions), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, file)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if os.Geteuid() == 0 { // it refuses to run as root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody(t)}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	answers(t, port)
	return fmt.Sprintf("postgres://any@127.0.0.1:%d/it?sslmode=disable", port)
}

func answers(t testing.TB, port int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("pgbouncer doesn't answer: %v", err)
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func nobody(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
