package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Lock is held by one process at a time; the kernel gives it up when the process dies, however it dies.
type Lock struct{ file *os.File }

var errLocked = errors.New("locked by another process")

// Acquire waits for the lock on a file, which it makes.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	for {
		lock, err := tryAcquire(path)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TryAcquire takes the lock if nobody holds it.
func TryAcquire(path string) (lock *Lock, free bool, err error) {
	lock, err = tryAcquire(path)
	if errors.Is(err, errLocked) {
		return nil, false, nil
	}
	return lock, err == nil, err
}

func tryAcquire(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := lockFile(file); err != nil {
		file.Close()
		return nil, err
	}
	// The holder before us may have removed the file: then we hold a lock that nobody else can see.
	ours, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("check lock: %w", err)
	}
	if seen, err := os.Stat(path); err != nil || !os.SameFile(ours, seen) {
		file.Close()
		return nil, errLocked
	}
	return &Lock{file}, nil
}

// Release gives the lock up.
func (l *Lock) Release() {
	if l != nil {
		l.file.Close()
	}
}

// Remove removes the lock's file and gives the lock up.
func (l *Lock) Remove() {
	os.Remove(l.file.Name())
	l.Release()
}
