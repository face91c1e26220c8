package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
)

// fakeDocker puts a client on the path that writes down its arguments and answers from files; what a real engine does
// with them is shown by every test that runs where one answers.
func fakeDocker(t *testing.T, info, running string) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	script := `#!/bin/sh
echo "$*" >> ` + log + `
case $1 in
info) ` + info + ` ;;
inspect) echo ` + running + ` ;;
logs) echo the last words of the server ;;
ps) echo "gone /no/such/folder"; echo "ours ` + dir + `" ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

func TestAvailableFollowsTheChoice(t *testing.T) {
	for _, c := range []struct {
		name, choice, info string
		want, failed       bool
	}{
		{"an engine answers", "", "exit 0", true, false},
		{"no engine answers", "", "exit 1", false, false},
		{"native although an engine answers", "native", "exit 0", false, false},
		{"docker although none answers", "docker", "exit 1", false, true},
		{"a word that isn't one", "podman", "exit 0", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeDocker(t, c.info, "true")
			t.Setenv(Choice, c.choice)
			got, err := Available(t.Context())
			if got != c.want || (err != nil) != c.failed {
				t.Errorf("available: got %t, %v, want %t, failed %t", got, err, c.want, c.failed)
			}
		})
	}
}

func TestServerKeepsOneContainerFromStartToRemove(t *testing.T) {
	calls := fakeDocker(t, "", "true")
	s := &Server{
		Image: "broker:1.2", Entrypoint: "java", Args: []string{"-Xmx1g"}, Env: []string{"A=b"}, User: &host.User{UID: 7, GID: 8},
		Folder: "/state/kafka-1", Publish: []string{"127.0.0.1:9092"}, Ready: func(context.Context) error { return nil },
	}
	ctx := t.Context()
	if err := errors.Join(s.Up(ctx), s.Up(ctx), s.Down(), s.Up(ctx), s.Kill(), s.Kill(), s.Remove(), s.Remove()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"run --detach --name relay-kafka-1 --label relay.test.folder=/state/kafka-1 --user 7:8 --volume /state/kafka-1:/state/kafka-1" +
			" --workdir /state/kafka-1 --env HOME=/state/kafka-1 --env A=b --publish 127.0.0.1:9092:9092 --entrypoint java broker:1.2 -Xmx1g",
		"stop --time 30 relay-kafka-1", "start relay-kafka-1", "kill relay-kafka-1", "rm --force --volumes relay-kafka-1",
	}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("docker was called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestServerThatDoesNotComeUpShowsItsLog(t *testing.T) {
	refuse := func(context.Context) error { return errors.New("connection refused") }
	for _, running := range []string{"false", "true"} {
		fakeDocker(t, "", running)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err := (&Server{Image: "broker:1.2", Folder: "/state/kafka-1", Ready: refuse}).Up(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "the last words of the server") {
			t.Errorf("running %s: got %v, want the server's log", running, err)
		}
	}
}

func TestSweepRemovesWhatKilledProcessesLeft(t *testing.T) {
	calls := fakeDocker(t, "", "true")
	if err := Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := calls()
	if len(got) != 2 || got[1] != "rm --force --volumes gone" {
		t.Errorf("docker was called %q, want one removal, of the container without a folder", got)
	}
}
