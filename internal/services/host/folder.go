package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Folder is the state of one running service or set of services: a folder of its own under the cache that
// belongs to the user who runs the service. It is locked while its process lives, so that what a killed process
// left behind can be told from what is in use.
type Folder struct {
	Path string
	lock *Lock
}

// NewFolder makes a state folder, and removes those whose process was killed before it could do so.
func NewFolder(ctx context.Context, cache, name string, user *User) (*Folder, error) {
	run := filepath.Join(cache, "run")
	if err := OpenDir(run); err != nil {
		return nil, err
	}
	// A folder that is made but not locked yet looks abandoned: making and sweeping exclude each other.
	guard, err := Acquire(ctx, filepath.Join(run, "lock"))
	if err != nil {
		return nil, err
	}
	defer guard.Release()
	sweep(run)
	path, err := os.MkdirTemp(run, name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a state folder: %w", err)
	}
	lock, err := tryAcquire(path + ".lock")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	f := &Folder{Path: path, lock: lock}
	if err := user.Own(path); err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return f, nil
}

// Remove deletes the folder and gives up its lock.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	f.lock.Remove()
	return err
}

// Sweep removes state folders that killed processes left behind.
func Sweep(ctx context.Context, cache string) error {
	guard, err := Acquire(ctx, filepath.Join(cache, "run", "lock"))
	if err != nil {
		return err
	}
	defer guard.Release()
	sweep(filepath.Join(cache, "run"))
	return nil
}

// sweep is best effort: what it can't remove now is tried again by the next run.
func sweep(run string) {
	locks, _ := filepath.Glob(filepath.Join(run, "*.lock"))
	for _, path := range locks {
		lock, err := tryAcquire(path)
		if err != nil {
			continue
		}
		os.RemoveAll(strings.TrimSuffix(path, ".lock"))
		lock.Remove()
	}
}
