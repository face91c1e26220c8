// Package process runs a server as a child that can't outlive us, and explains why one didn't come up.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
)

// Command says what to run.
type Command struct {
	Name  string         // what messages call it
	Path  string         // the program
	Args  []string       // its arguments, without its name
	Dir   string         // its working folder; its user must be able to enter it
	Env   []string       // its whole environment
	User  *host.User     // whom to run it as; nil for ourselves
	Log   string         // file that gets its output, appended
	Death syscall.Signal // what Linux sends it when we die; default SIGKILL
}

// Process is a running child.
type Process struct {
	command Command
	cmd     *exec.Cmd
	done    chan struct{}
	err     error // how it ended; set before done is closed
}

// Start starts the child in a process group of its own, so that an interrupt typed at the terminal reaches only
// us and we can end it in order.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, log, log
	if c.Death == 0 {
		c.Death = syscall.SIGKILL
	}
	cmd.SysProcAttr = attributes(c)
	p := &Process{command: c, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one locked thread: Linux sends the death signal when the thread that
// started the child ends, not only when the process does.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Run runs a command to its end and returns its output with the error when it fails.
func Run(ctx context.Context, c Command) error {
	p, err := Start(c)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s: %w", c.Name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", c.Name, p.err, Tail(c.Log))
	}
	return nil
}

// Await polls ready until it succeeds. It fails when the child ends or ctx does, with the tail of the child's log.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		last = ready(attempt)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while it started: %w\n%s", p.command.Name, p.exit(), Tail(p.command.Log))
		case <-ctx.Done():
			return fmt.Errorf("%s did not come up: %w; last: %w\n%s", p.command.Name, context.Cause(ctx), last, Tail(p.command.Log))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop sends the signal and waits; a child that is still there after grace is killed, and Stop says so.
func (p *Process) Stop(signal syscall.Signal, grace time.Duration) error {
	if p == nil {
		return nil
	}
	p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("stop %s: still running %s after %s, killed\n%s", p.command.Name, grace, signal, Tail(p.command.Log))
	}
}

// Kill ends the child and its process group at once and waits for the child.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	killGroup(p.cmd.Process)
	<-p.done
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}
