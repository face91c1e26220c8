//go:build unix && !linux

package process

import "syscall"

// Only Linux can end the child when we are killed; elsewhere it stays until it is stopped by hand.
func attributes(c Command) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.User != nil {
		attr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID}
	}
	return attr
}
