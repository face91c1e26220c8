package kafka

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/jobrelay/relay/sinks"
)

// maxReply bounds what one reply may take of memory: a length that isn't Kafka's (another protocol on the port)
// must not become an allocation.
const maxReply = 64 << 20

// conn is one connection to one broker. It carries one request at a time and starts no goroutine.
type conn struct {
	net         net.Conn // with TLS, if any
	raw         net.Conn // without
	in          *bufio.Reader
	address     string
	versions    map[protocol.ApiKey]int16
	correlation int32
	used        bool      // it has answered something after its handshake
	broken      bool      // not to be used again
	idleSince   time.Time // while in a pool
	expires     time.Time // end of the SASL session; zero: none
}

// forgetUnsent has the system drop what it hasn't sent yet when the connection ends without close, or broken: with the
// process, or because no answer came. A request that was given up would else go on for minutes after a cut, and arrive
// when it has long been sent again, maybe by another process.
func forgetUnsent(raw net.Conn, forget bool) {
	seconds := -1
	if forget {
		seconds = 0
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(seconds)
	}
}

// close closes the connection at once. TLS would first say goodbye, and wait when nobody listens.
func (c *conn) close() {
	if !c.broken {
		forgetUnsent(c.raw, false)
	}
	_ = c.raw.Close()
}

// next numbers a request.
func (c *conn) next() int32 {
	c.correlation++
	return c.correlation
}

// version is the newest of an API that both sides know.
func (c *conn) version(key protocol.ApiKey) int16 { return c.versions[key] }

// exchange sends a frame and returns the reply that follows, the size in front included. sent says whether the
// broker may have the frame: false only when not one byte of it went out. When ctx ends, exchange ends.
func (c *conn) exchange(ctx context.Context, frame []byte, correlation int32) (reply []byte, sent bool, err error) {
	err = c.bound(ctx, func() error {
		c.broken = true // until the reply is here, or it would be read as another's
		n, err := c.net.Write(frame)
		sent = n > 0
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if reply, err = c.read(correlation); err != nil {
			return fmt.Errorf("read the reply: %w", err)
		}
		c.broken = false
		return nil
	})
	if err != nil {
		return nil, sent, err
	}
	c.used = true
	return reply, true, nil
}

// bound runs f, whose reads and writes fail at once when ctx ends; the error is then the reason that ctx gives.
func (c *conn) bound(ctx context.Context, f func() error) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.net.SetDeadline(time.Unix(1, 0))
	})
	err := f()
	if stop() {
		return err
	}
	<-done
	c.broken = true // its deadline lies in the past
	if err != nil {
		return ended(ctx)
	}
	return nil
}

// read reads one frame and checks that it answers the request of that number.
func (c *conn) read(correlation int32) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		if n := binary.BigEndian.Uint32(head[:]); looksLikeTLS(n) {
			return nil, errExpectsTLS
		}
		return nil, noEOF(err)
	}
	size, got := binary.BigEndian.Uint32(head[:]), int32(binary.BigEndian.Uint32(head[4:]))
	switch {
	case looksLikeTLS(size):
		return nil, errExpectsTLS
	case size < 4 || size > maxReply:
		return nil, fmt.Errorf("%w: %d bytes announced", errGarbled, size)
	case got != correlation:
		return nil, fmt.Errorf("%w: an answer to request %d, not to %d", errGarbled, got, correlation)
	}
	frame := make([]byte, 4+size)
	copy(frame, head[:])
	if _, err := io.ReadFull(c.in, frame[len(head):]); err != nil {
		return nil, noEOF(err)
	}
	return frame, nil
}

// looksLikeTLS says whether a reply begins as a TLS alert does, which is what a TLS port says to Kafka's bytes.
func looksLikeTLS(head uint32) bool { return head>>24 == 0x15 && head>>16&0xff == 3 }

// noEOF makes a plain EOF what it is here: an answer that stays away.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errCut
	}
	return err
}

// request sends one of kafka-go's messages and returns the reply.
func (c *conn) request(ctx context.Context, msg protocol.Message) (protocol.Message, error) {
	reply, err := c.ask(ctx, msg)
	if err != nil {
		return nil, err
	}
	res, err := decode(reply, msg.ApiKey(), c.version(msg.ApiKey()))
	c.broken = c.broken || err != nil
	return res, err
}

// ask sends one of kafka-go's messages and returns the frame of the reply.
func (c *conn) ask(ctx context.Context, msg protocol.Message) ([]byte, error) {
	if _, known := c.versions[msg.ApiKey()]; !known && c.versions != nil {
		return nil, fmt.Errorf("%w: %v", errNoAPI, msg.ApiKey())
	}
	var frame bytes.Buffer
	correlation := c.next()
	if err := protocol.WriteRequest(&frame, c.version(msg.ApiKey()), correlation, clientID, msg); err != nil {
		return nil, err
	}
	reply, _, err := c.exchange(ctx, frame.Bytes(), correlation)
	return reply, err
}

// decode has kafka-go read a reply. Its decoder trusts the lengths in it, so a panic is a garbled reply. (It also
// reserves memory for as many elements as a reply announces: the first reply of whoever answers is read by
// parseVersions instead.)
func decode(reply []byte, key protocol.ApiKey, version int16) (res protocol.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("%w: %v", errGarbled, p)
		}
	}()
	_, res, err = protocol.ReadResponse(bytes.NewReader(reply), key, version)
	return res, err
}

// ended is why a context ended, in words.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return errTimeout
	}
	return cause
}

// inTime is the rule for turns, [sinks.InTime], in our words.
func inTime(ctx context.Context, start time.Time) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return sinks.InTime(ctx, start)
}
