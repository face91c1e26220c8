package chaos

import (
	"context"
	"net"
	"sync/atomic"
)

// wire is a producer's connection, which can break in the middle of a COMMIT: before the database has got it, or after
// that and before the answer.
type wire struct {
	net.Conn
	fault atomic.Int32
}

const (
	whole int32 = iota
	cutBefore
	cutAfter
)

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	var err error
	w.Conn, err = d.DialContext(ctx, network, addr)
	return w, err
}

// cut breaks the connection at the next write, before it or right after it.
func (w *wire) cut(after bool) {
	if after {
		w.fault.Store(cutAfter)
	} else {
		w.fault.Store(cutBefore)
	}
}

func (w *wire) Write(b []byte) (int, error) {
	switch w.fault.Load() {
	case cutBefore:
		w.Conn.Close()
	case cutAfter:
		// Closed in an orderly way, so that what was written still arrives.
		n, err := w.Conn.Write(b)
		w.Conn.Close()
		return n, err
	}
	return w.Conn.Write(b)
}
