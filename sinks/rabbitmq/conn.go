package rabbitmq

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	bufferSize   = 1 << 20          // bytes that may wait in a conn before Write blocks
	pieceSize    = 32 << 10         // bytes that go out although the connection is corked
	chunkSize    = 64 << 10         // bytes that go out under one write deadline
	writeTimeout = 30 * time.Second // of one chunk: the last resort against a peer that doesn't read
	flushTimeout = 500 * time.Millisecond
)

// conn gathers small writes. The library makes a system call for each message that it publishes; here Write only
// appends to a buffer, and one goroutine sends what has come together: at once, or, while the connection is corked, in
// pieces of a good size. (Under TLS that saves records too.)
//
// It counts the bytes: a message whose first byte is at or beyond sent() when the connection ends was never handed to
// the kernel, so the broker has definitely not taken it.
type conn struct {
	net.Conn          // read by the library, written by send alone; TLS or the same as raw
	raw      net.Conn // the TCP connection
	direct   bool     // Write sends by itself: what a benchmark compares with
	limit    time.Duration

	mu      sync.Mutex
	changed sync.Cond
	buf     []byte
	in, out int64 // bytes that Write took, bytes that the kernel took
	err     error // ends everything
	corked  bool  // more is coming
	closing bool  // send what is there, then end
	done    chan struct{}
}

func newConn(raw, stream net.Conn, direct bool) *conn {
	c := &conn{Conn: stream, raw: raw, direct: direct, limit: writeTimeout, done: make(chan struct{})}
	c.changed.L = &c.mu
	go c.send()
	return c
}

// Write appends to the buffer, or waits until there is room. It returns the error of an earlier send.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !c.closing && len(c.buf) >= bufferSize {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closing:
		return 0, net.ErrClosed
	}
	c.buf = append(c.buf, b...)
	c.in += int64(len(b))
	if c.due() {
		c.changed.Broadcast()
	}
	for c.direct && c.out < c.in && c.err == nil {
		c.changed.Wait()
	}
	return len(b), c.err
}

// due says whether what has gathered should go out.
func (c *conn) due() bool { return len(c.buf) >= pieceSize || len(c.buf) > 0 && !c.corked }

// cork holds small writes back until there are many or it is undone, which whoever waits for an answer must do first.
func (c *conn) cork(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = on && !c.direct
	if c.due() {
		c.changed.Broadcast()
	}
}

// send writes what has gathered until the connection ends.
func (c *conn) send() {
	defer close(c.done)
	var batch []byte
	for {
		c.mu.Lock()
		for !c.due() && c.err == nil && !c.closing {
			c.changed.Wait()
		}
		if c.err != nil || len(c.buf) == 0 {
			c.mu.Unlock()
			return
		}
		batch, c.buf = c.buf, batch[:0]
		c.changed.Broadcast()
		c.mu.Unlock()
		c.sendBatch(batch)
	}
}

func (c *conn) sendBatch(batch []byte) {
	for len(batch) > 0 {
		chunk := batch[:min(chunkSize, len(batch))]
		_ = c.raw.SetWriteDeadline(time.Now().Add(c.limit))
		n, err := c.Conn.Write(chunk)
		batch = batch[n:]
		c.mu.Lock()
		c.out += int64(n)
		if err != nil && c.err == nil {
			c.err = err
		}
		err = c.err
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// taken is the number of bytes that Write has taken: where the next message begins.
func (c *conn) taken() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in
}

// sent is the number of bytes that were handed to the kernel. It is final after abort.
func (c *conn) sent() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out
}

// failure is what ended the sending side, nil if nothing did.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// abort ends the connection at once, from any goroutine: reads and writes under way fail, what waits is dropped. It
// returns when nothing of it runs any more.
func (c *conn) abort(cause error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = cause
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	_ = c.raw.Close()
	<-c.done
}

// Close sends what waits, but not for long, and ends the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closing = true
	c.changed.Broadcast()
	c.mu.Unlock()
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.abort(errors.New("the broker doesn't read"))
		return nil
	}
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return c.raw.Close()
	}
	defer time.AfterFunc(flushTimeout, func() { _ = c.raw.Close() }).Stop() // the end of TLS is a write that can block
	return c.Conn.Close()
}

// SetDeadline sets that of reading alone: every write has one of its own.
func (c *conn) SetDeadline(t time.Time) error { return c.Conn.SetReadDeadline(t) }
