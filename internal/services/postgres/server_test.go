package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/services/postgres"
)

// helperMode makes this test binary a program that owns a server: it prints the URL, then waits for the end of its
// standard input.
const helperMode = "RELAY_TEST_POSTGRES_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(helperMode) != "" {
		if err := owner(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func owner() error {
	server, err := postgres.Start(context.Background(), postgres.Options{})
	if err != nil {
		return err
	}
	fmt.Println(server.URL)
	io.Copy(io.Discard, os.Stdin)
	return server.Stop()
}

func TestServerStartsRestartsAndLeavesNothing(t *testing.T) {
	needDownload(t)
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"max_connections": "17"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	execute(t, server.URL, "CREATE TABLE kept (n int)")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Up(t.Context()); err != nil {
		t.Fatalf("start after a crash: %v", err)
	}
	execute(t, server.URL, "INSERT INTO kept VALUES (1)")
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	if err := server.Up(t.Context()); err != nil {
		t.Fatalf("start after a stop: %v", err)
	}
	execute(t, server.URL, "SELECT 1 / (SELECT count(*) FROM kept WHERE current_setting('max_connections') = '17')")
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if !gone(server.URL) {
		t.Error("the server still answers after Stop")
	}
}

func TestServerRefusesWrongPassword(t *testing.T) {
	needDownload(t)
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", "wrong")
	if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was accepted: any user of the machine could get in")
	}
}

func TestStartFailsWithTheServersOwnWords(t *testing.T) {
	needDownload(t)
	t.Parallel()
	_, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"max_connections": "many"}})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Errorf("start with a wrong setting: got %v, want the server's message about max_connections", err)
	}
}

// A killed owner leaves no server on Linux, and its data goes with the next start.
func TestServerEndsWithItsKilledOwner(t *testing.T) {
	needDownload(t)
	t.Parallel()
	cache := sharedBinaries(t, host.Unprivileged())
	owner, addr := startOwner(t, os.Args[0], nil, cache)
	owner.Process.Kill()
	owner.Wait()
	eventually(t, "the server of a killed owner is gone", func() bool { return gone(addr) })

	again, _ := startOwner(t, os.Args[0], nil, cache)
	if folders := dataFolders(t, cache); len(folders) != 1 {
		t.Errorf("data folders after the next start: got %v, want only its own", folders)
	}
	again.stop(t)
	if folders := dataFolders(t, cache); len(folders) != 0 {
		t.Errorf("data folders after a stop: got %v, want none", folders)
	}
}

// Root starts it as another user above; here an ordinary user starts it, with a cache of his own.
func TestOrdinaryUserStartsServer(t *testing.T) {
	needDownload(t)
	t.Parallel()
	user := host.Unprivileged()
	cache := sharedBinaries(t, user)
	binary := filepath.Join(cache, "owner") // the folder that `go test` builds in is closed to others
	copyFile(t, os.Args[0], binary)
	owner, addr := startOwner(t, binary, user, cache)
	if user != nil {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(owner.Process.Pid) + "/status")
		if err == nil && !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", user.UID)) {
			t.Errorf("the owner doesn't run as %s:\n%s", user.Name, status)
		}
	}
	execute(t, addr, "SELECT 1")
	owner.stop(t)
	if !gone(addr) {
		t.Error("the server still answers after its owner ended")
	}
}

// process is a running owner; closing its input ends it.
type process struct {
	*exec.Cmd
	in io.Closer
}

// startOwner runs this binary as the owner of a server and returns it with the server's URL.
func startOwner(t *testing.T, binary string, user *host.User, cache string) (process, string) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "XDG_CACHE_HOME=" + cache, helperMode + "=1"}
	cmd.Dir, cmd.Stderr = cache, t.Output()
	if user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user.UID, Gid: user.GID}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner printed no URL: %v", err)
	}
	return process{cmd, in}, strings.TrimSpace(line)
}

// stop lets the owner end by itself.
func (p process) stop(t *testing.T) {
	t.Helper()
	p.in.Close()
	if err := p.Wait(); err != nil {
		t.Errorf("the owner failed: %v", err)
	}
}

// sharedBinaries makes a cache folder that user owns and that borrows this machine's binaries, to save the download.
func sharedBinaries(t *testing.T, user *host.User) string {
	t.Helper()
	cache, err := host.CacheDir(user)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := host.NewFolder(t.Context(), cache, "test", user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Remove() })
	pattern := filepath.Join(cache, "postgres-*-"+postgres.Version)
	binaries, _ := filepath.Glob(pattern)
	if len(binaries) == 0 { // nothing on this machine has started one yet
		server, err := postgres.Start(t.Context(), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		server.Stop()
		binaries, _ = filepath.Glob(pattern)
	}
	if len(binaries) != 1 {
		t.Fatalf("binaries: got %v, want one folder %s", binaries, pattern)
	}
	own := filepath.Join(folder.Path, "relay")
	link := filepath.Join(own, filepath.Base(binaries[0]))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binaries[0], link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := user.Own(own, link); err != nil {
		t.Fatal(err)
	}
	return folder.Path
}

func dataFolders(t *testing.T, cache string) []string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(cache, "relay", "run", "postgres-*[0-9]"))
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func gone(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		case <-tick.C:
		}
	}
}

func needDownload(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Postgres; -short leaves it out")
	}
}
