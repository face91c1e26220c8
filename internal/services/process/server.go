package process

import (
	"context"
	"sync"
	"syscall"
	"time"
)

// Server is a command that can be stopped and started again, on the same data and address.
type Server struct {
	Command Command
	Ready   func(context.Context) error // tells whether it answers
	Orderly syscall.Signal              // asks it to stop; default SIGTERM
	Crash   syscall.Signal              // ends it at once; default SIGKILL, to its process group

	mu      sync.Mutex
	process *Process // nil while it is down
}

// stopLimit is how long an orderly stop may take.
const stopLimit = 30 * time.Second

// Up starts the server and waits until it answers; it does nothing if it is up.
func (s *Server) Up(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	p, err := Start(s.Command)
	if err != nil {
		return err
	}
	if err := p.Await(ctx, s.Ready); err != nil {
		p.Kill()
		return err
	}
	s.process = p
	return nil
}

// Down stops the server as an operator would.
func (s *Server) Down() error {
	signal := s.Orderly
	if signal == 0 {
		signal = syscall.SIGTERM
	}
	return s.take().Stop(signal, stopLimit)
}

// Kill stops the server as a crash would.
func (s *Server) Kill() error {
	p := s.take()
	if s.Crash == 0 {
		p.Kill()
		return nil
	}
	return p.Stop(s.Crash, stopLimit)
}

// Log returns the last lines of what the server wrote.
func (s *Server) Log() string { return Tail(s.Command.Log) }

func (s *Server) take() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process = nil
	return p
}
