//go:build unix

package kafka

import (
	"errors"
	"net"
	"syscall"
)

// quiet says whether nothing waits to be read from an idle connection, neither an end nor bytes that nobody asked
// for. Without this look the first request after a broker's restart would be written into a dead connection, and its
// messages would be unknown instead of sent by another one.
func quiet(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		silent = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
		return true // look once, don't wait
	})
	return err == nil && silent
}
