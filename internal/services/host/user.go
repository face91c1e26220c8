package host

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// User is the unprivileged user that root runs servers as; Postgres refuses to run as root, and no test server
// needs root's rights. nil means the user that we are.
type User struct {
	Name     string
	UID, GID uint32
}

// overflow is the id that the kernel itself maps strangers to: right where no account database exists.
const overflow = 65534

// Unprivileged returns whom to run servers as: nil for an ordinary user, who runs them himself; for root nobody,
// else the first well-known service account that exists.
func Unprivileged() *User {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"nobody", "daemon", "postgres", "bin"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &User{Name: name, UID: uint32(uid), GID: uint32(gid)}
		}
	}
	return &User{Name: strconv.Itoa(overflow), UID: overflow, GID: overflow}
}

// Own gives files to the user; it does nothing for nil.
func (u *User) Own(paths ...string) error {
	if u == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Lchown(path, int(u.UID), int(u.GID)); err != nil {
			return fmt.Errorf("give a file to %s: %w", u.Name, err)
		}
	}
	return nil
}
