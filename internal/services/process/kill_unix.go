//go:build unix

package process

import (
	"os"
	"syscall"
)

func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }
