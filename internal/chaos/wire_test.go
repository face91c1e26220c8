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
	fault *atomic.Int32
}

const (
	whole int32 = iota
	cutBefore
	cutAfter
)

// wired makes connections whose first can be cut; later ones are the driver's own, to cancel what it has lost.
func wired(fault *atomic.Int32) func(context.Context, string, string) (net.Conn, error) {
	var dialed atomic.Bool
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil || dialed.Swap(true) {
			return conn, err
		}
		return &wire{conn, fault}, nil
	}
}

// Write breaks the connection when it is told to.
func (w *wire) Write(b []byte) (int, error) {
	switch w.fault.Load() {
	case cutBefore:
		w.Close()
	case cutAfter:
		defer w.Close() // in an orderly way, so that what was written still arrives
	}
	return w.Conn.Write(b)
}
