//go:build !unix

package process

import (
	"os"
	"syscall"
)

func attributes(Command) *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { p.Kill() }
