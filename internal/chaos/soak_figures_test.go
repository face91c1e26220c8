package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	patient  = 2 * time.Minute // until idle connections are closed and memory is given back
	measured = 2 * time.Second
)

// figures are what a process holds.
type figures [figureCount]int

const (
	memory = iota
	heap
	goroutines
	files
	connections
	sessions
	figureCount
)

// figureNames says what they are and how much more there may be at the end than at the beginning: what a pool or a client may
// keep for later, which depends on what the last busy moment needed.
var figureNames = [figureCount]struct {
	name string
	more int
}{
	memory: {"memory, MiB", 24}, heap: {"live heap, MiB", 8}, goroutines: {"goroutines", 12}, files: {"open files", 8},
	connections: {"TCP connections", 8}, sessions: {"database sessions", 4},
}

// measure asks the system, the relay itself and the database.
func (s *soak) measure(ctx context.Context, r *relay) (f figures, err error) {
	proc := fmt.Sprintf("/proc/%d", r.Cmd.Process.Pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return f, err
	}
	if f[files], f[connections], err = descriptors(proc); err != nil {
		return f, err
	}
	_, metrics := r.Get("/metrics")
	f[memory] = number(string(status), `VmRSS:\s+(\d+) kB`) >> 10
	f[goroutines] = number(metrics, `go_goroutines (\S+)`)
	f[heap] = number(metrics, `go_memstats_next_gc_bytes (\S+)`) >> 21 // the next collection comes at twice of what the last one left
	if f[memory] == 0 || f[goroutines] == 0 || f[heap] == 0 {
		return f, fmt.Errorf("%s: no figures in %s and %s", r.name(), status, metrics)
	}
	err = s.db.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, r.name()).Scan(&f[sessions])
	return f, err
}

// number finds a number at the beginning of a line, and is 0 without.
func number(text, pattern string) int {
	found := regexp.MustCompile(`(?m)^` + pattern).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(found[1], 64)
	return int(n)
}

// descriptors counts what a process has open, and its TCP connections among it.
func descriptors(proc string) (open, connected int, err error) {
	sockets := map[string]bool{}
	for _, table := range []string{"/net/tcp", "/net/tcp6"} {
		text, err := os.ReadFile(proc + table)
		if err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] != "0A" { // LISTEN
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	all, err := filepath.Glob(proc + "/fd/*")
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && sockets[to] {
			connected++
		}
	}
	return len(all), connected, err
}

// quiet is what a survivor holds now that there is nothing to do.
func (s *soak) quiet(r *relay) figures {
	s.t.Helper()
	f, err := s.measure(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// follow keeps the peaks until ctx ends.
func (s *soak) follow(ctx context.Context) {
	for ctx.Err() == nil {
		for i := range survivors {
			limited, cancel := context.WithTimeout(ctx, patience)
			if f, err := s.measure(limited, s.relays[i]); err == nil { // it may be stopped, or the database away
				s.peaks.raise(i, f)
			}
			cancel()
		}
		select {
		case <-ctx.Done():
		case <-time.After(measured):
		}
	}
}

// peaks are the largest figures of each survivor.
type peaks struct {
	mu  sync.Mutex
	all [survivors]figures
}

func (p *peaks) raise(survivor int, by figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range by {
		p.all[survivor][i] = max(p.all[survivor][i], by[i])
	}
}

func (p *peaks) of(survivor int) figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[survivor]
}

// exceeds says what is more than at the beginning, and more than it may be.
func (f figures) exceeds(begin figures) (what []string) {
	for i, of := range figureNames {
		if f[i] > begin[i]+of.more {
			what = append(what, fmt.Sprintf("%s: %d at the beginning, %d at the end, %d more are allowed", of.name, begin[i], f[i], of.more))
		}
	}
	return what
}

// compare waits until the survivors hold no more than at the beginning.
func (s *soak) compare(begin [survivors]figures) {
	s.t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\t\tbegin\tpeak\tend\tbound\t\n")
	for i := range begin {
		r := s.relays[i]
		end := s.quiet(r)
		for limit := time.Now().Add(patient); len(end.exceeds(begin[i])) > 0 && time.Now().Before(limit); {
			s.hold(measured)
			end = s.quiet(r)
		}
		for _, what := range end.exceeds(begin[i]) {
			s.t.Errorf("%s: %s", r.name(), what)
		}
		peak := s.peaks.of(i)
		for j, of := range figureNames {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t\n", r.name(), of.name, begin[i][j], peak[j], end[j], begin[i][j]+of.more)
		}
	}
	table.Flush()
	s.t.Logf("what relays hold\n%s", text.String())
}
