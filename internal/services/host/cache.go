package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// systemCache is where root keeps downloads: root's home is closed to the user that a database runs as.
const systemCache = "/var/cache/relay"

// CacheDir returns the folder for downloads and for the data of running services, and makes it: relay in
// $XDG_CACHE_HOME, else /var/cache/relay for root, else relay in the user's cache folder. As root it is always a
// folder that user can enter; an XDG_CACHE_HOME that user can't enter is passed over for /var/cache/relay.
func CacheDir(user *User) (string, error) {
	dir, err := cacheDir(user)
	if err != nil {
		return "", err
	}
	return dir, OpenDir(dir)
}

func cacheDir(user *User) (string, error) {
	if xdg := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(xdg) && (user == nil || enterable(xdg)) {
		return filepath.Join(xdg, "relay"), nil
	}
	if user != nil {
		return systemCache, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(base, "relay"), nil
}

// OpenDir makes dir and opens it to other users, whatever the umask says.
func OpenDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("open folder to the database's user: %w", err)
	}
	return nil
}

// enterable tells whether every folder on the way to dir that exists lets other users through.
func enterable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		missing := errors.Is(err, fs.ErrNotExist)
		if !missing && (err != nil || !info.IsDir() || info.Mode().Perm()&0o001 == 0) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
