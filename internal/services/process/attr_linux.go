package process

import "syscall"

func attributes(c Command) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: c.Death}
	if c.User != nil {
		attr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID}
	}
	return attr
}
