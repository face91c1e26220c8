package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Fill returns the folder name in cache, and lets fill make it if it isn't there yet. A folder appears whole or not
// at all, so an interrupted download is repeated; a second process waits for the first one's download. The content
// becomes readable for everybody. Remove the folder to have it made again.
func Fill(ctx context.Context, cache, name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	lock, err := Acquire(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("clear a half-made folder: %w", err)
	}
	defer os.RemoveAll(part)
	if err := OpenDir(part); err != nil {
		return "", err
	}
	if err := fill(part); err != nil {
		return "", err
	}
	if err := readable(part); err != nil {
		return "", err
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("put the folder in place: %w", err)
	}
	return dir, nil
}

// readable opens a tree to every user, whatever umask it was written under.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
