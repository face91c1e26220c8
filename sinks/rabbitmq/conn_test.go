package rabbitmq

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// ends makes a connection over real TCP: ours, and the peer's.
func ends(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(raw, raw, false)
	t.Cleanup(func() { peer.Close(); c.abort(errAbandoned) })
	return c, peer
}

// Everything that Write took arrives, once and in order, whatever the sizes; Close sends the rest.
func TestConnKeepsTheStream(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		c, peer := ends(t)
		c.direct = direct
		got := make(chan []byte)
		go func() { all, _ := io.ReadAll(peer); got <- all }()
		var want bytes.Buffer
		for i := range 3000 {
			piece := bytes.Repeat([]byte{byte(i)}, i%4000)
			want.Write(piece)
			if n, err := c.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
		}
		if c.taken() != int64(want.Len()) {
			t.Errorf("taken: got %d, want %d", c.taken(), want.Len())
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if all := <-got; !bytes.Equal(all, want.Bytes()) {
			t.Errorf("got %d bytes, want %d, the same", len(all), want.Len())
		}
		if c.sent() != int64(want.Len()) {
			t.Errorf("sent: got %d, want %d", c.sent(), want.Len())
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Errorf("Write after Close succeeds")
		}
	}
}

// A peer that doesn't read: Write waits when the buffer is full, abort ends that at once, and sent says what left.
func TestConnAbort(t *testing.T) {
	t.Parallel()
	c, _ := ends(t)
	cause := errors.New("the time is over")
	var writer sync.WaitGroup
	var failed error
	writer.Go(func() {
		for failed == nil {
			_, failed = c.Write(make([]byte, 100_000))
		}
	})
	eventually(t, "the buffer is full, and the kernel's is", func() bool {
		before := c.sent()
		time.Sleep(100 * time.Millisecond) // a sender that is only slow has moved by then
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.buf) >= bufferSize && c.out == before && before > 0
	})
	start := time.Now()
	c.abort(cause)
	writer.Wait()
	if took := time.Since(start); took > time.Second {
		t.Errorf("abort took %v", took)
	}
	if !errors.Is(failed, cause) || !errors.Is(c.failure(), cause) {
		t.Errorf("Write: got %v, want the cause", failed)
	}
	if sent, taken := c.sent(), c.taken(); sent == 0 || sent > taken-bufferSize {
		t.Errorf("sent %d of %d bytes, want less by the buffer of %d", sent, taken, bufferSize)
	}
	c.abort(errAbandoned) // twice is fine, and the first cause stays
	if !errors.Is(c.failure(), cause) {
		t.Errorf("failure: got %v", c.failure())
	}
}

// A peer that doesn't read doesn't keep Close.
func TestConnClose(t *testing.T) {
	t.Parallel()
	c, _ := ends(t)
	for c.taken() < 16<<20 && c.failure() == nil {
		c.mu.Lock()
		full := len(c.buf) >= bufferSize
		c.mu.Unlock()
		if full {
			break
		}
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	_ = c.Close()
	if took := time.Since(start); took > flushTimeout+time.Second {
		t.Errorf("Close took %v", took)
	}
}

// The write deadline is the last resort: without anybody to call abort, a peer that doesn't read ends the connection.
func TestConnWriteDeadline(t *testing.T) {
	t.Parallel()
	c, _ := ends(t)
	c.limit = 50 * time.Millisecond
	var err error
	for err == nil {
		_, err = c.Write(make([]byte, 100_000))
	}
	if !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v, want a timeout", err)
	}
}
