package rabbitmq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// player is a RabbitMQ on the other end of a pipe, as far as a publisher sees one. It answers each message as its bytes
// say, and notes what it took. A real node can't be told to answer so, nor asked what a frame looked like.
type player struct {
	testing.TB
	net.Conn
	in      *bufio.Reader
	say     []byte
	channel uint16 // the one that is open
	shut    bool   // it was closed, and the client hasn't said that it knows
	tag     uint64
	held    uint64 // up to this one they are acknowledged later; 0: none

	method  []byte // basic.publish of the message that comes
	content []byte // its header frame
	body    []byte
	missing uint64 // bytes of the body

	taken    map[string]int
	largest  int               // body that it took
	contents map[string][]byte // header frames by message id
	bodies   map[string][]byte
}

const (
	methodFrame, headerFrame, bodyFrame = 1, 2, 3
	pipeFrame                           = 4096 // frame_max: the least that the protocol allows
)

func newPlayer(t testing.TB, conn net.Conn, say []byte) *player {
	return &player{TB: t, Conn: conn, in: bufio.NewReader(conn), say: say, taken: map[string]int{}, contents: map[string][]byte{}, bodies: map[string][]byte{}}
}

// serve is one connection until it ends.
func (p *player) serve() {
	defer p.Close()
	if _, err := io.CopyN(io.Discard, p.in, 8); err != nil {
		return
	}
	p.send(0, 10, 10, []byte{0, 9, 0, 0, 0, 0}, long("PLAIN"), long("en_US"))
	for {
		if p.held > 0 { // what waits is acknowledged when nothing more comes
			_ = p.SetReadDeadline(time.Now().Add(time.Millisecond))
		}
		_, err := p.in.Peek(1)
		_ = p.SetReadDeadline(time.Time{})
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			p.ack(p.held, 1)
			p.held = 0
			continue
		}
		var head [7]byte
		if _, err := io.ReadFull(p.in, head[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(p.in, payload); err != nil || payload[len(payload)-1] != 0xCE {
			return
		}
		if payload = payload[:len(payload)-1]; len(payload) > pipeFrame-frameOverhead {
			p.Errorf("a frame of %d bytes", len(payload))
		}
		if !p.frame(head[0], binary.BigEndian.Uint16(head[1:]), payload) {
			return
		}
	}
}

// frame deals with one frame and says whether the connection goes on.
func (p *player) frame(kind byte, channel uint16, b []byte) bool {
	switch kind {
	case methodFrame:
		return p.call(channel, binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), b[4:])
	case headerFrame:
		p.content, p.body, p.missing = b, nil, binary.BigEndian.Uint64(b[4:])
	case bodyFrame:
		p.body, p.missing = append(p.body, b...), p.missing-uint64(len(b))
	default: // a heartbeat
		return true
	}
	return p.missing > 0 || p.shut || p.message()
}

func (p *player) call(channel, class, method uint16, args []byte) bool {
	switch class<<8 | method {
	case 10<<8 | 11: // start-ok
		p.send(0, 10, 30, []byte{0, 0}, []byte{0, 0, pipeFrame >> 8, 0}, []byte{0, 0})
	case 10<<8 | 40: // open
		p.send(0, 10, 41, short(""))
	case 10<<8 | 50: // close
		p.send(0, 10, 51)
		return false
	case 20<<8 | 10: // channel.open
		p.channel, p.shut, p.tag, p.held = channel, false, 0, 0
		p.send(channel, 20, 11, long(""))
	case 20<<8 | 40: // channel.close
		p.send(channel, 20, 41)
	case 85<<8 | 10: // confirm.select
		p.send(channel, 85, 11)
	case 60<<8 | 40: // basic.publish
		p.method = args
	}
	return true
}

// What the player does with a message.
const (
	acks = iota
	acksLater
	returns
	nacks
	closesMissing
	closesTooLarge
	closesDenied
	cuts
)

// message answers what has come whole.
func (p *player) message() bool {
	p.tag++
	exchange, rest := cutShort(p.method[2:])
	key, _ := cutShort(rest)
	id, _ := properties(p.TB, p.content)["message-id"].(string)
	do := byte(returns)
	if !strings.HasPrefix(key, "relay-probe-") {
		if do = acks; len(p.say) > 0 {
			do, p.say = p.say[0]%16, p.say[1:]
		}
		p.contents[id], p.bodies[id] = p.content, p.body
	}
	switch do {
	case returns:
		p.send(p.channel, 60, 50, be16(312), short("NO_ROUTE"), short(exchange), short(key))
		p.write(headerFrame, p.channel, p.content)
		for part := range slices.Chunk(p.body, pipeFrame-frameOverhead) {
			p.write(bodyFrame, p.channel, part)
		}
		p.ack(p.tag, 0)
	case nacks:
		p.send(p.channel, 60, 120, be64(p.tag), []byte{0})
	case closesMissing, closesTooLarge, closesDenied:
		p.shut, p.held = true, 0 // what it has taken on this channel it forgets to confirm
		code, why := uint16(404), "NOT_FOUND"
		if do == closesDenied {
			code, why = 403, "ACCESS_REFUSED"
		} else if do == closesTooLarge && len(p.body) > p.largest {
			code, why = 406, fmt.Sprintf("message size %d is larger than configured max size %d", len(p.body), p.largest)
		}
		p.send(p.channel, 20, 40, be16(code), short(why), be16(60), be16(40))
	case cuts:
		return false
	case acksLater:
		p.take(id)
		p.held = p.tag
	default:
		p.take(id)
		p.ack(p.tag, 0)
	}
	return true
}

func (p *player) take(id string) {
	p.taken[id]++
	p.largest = max(p.largest, len(p.body))
}

// ack confirms one message, or with multiple all up to it that wait.
func (p *player) ack(tag uint64, multiple byte) {
	p.send(p.channel, 60, 80, be64(tag), []byte{multiple})
}

func (p *player) send(channel, class, method uint16, args ...[]byte) {
	p.write(methodFrame, channel, bytes.Join(append([][]byte{be16(class), be16(method)}, args...), nil))
}

func (p *player) write(kind byte, channel uint16, payload []byte) {
	frame := binary.BigEndian.AppendUint32(append([]byte{kind}, be16(channel)...), uint32(len(payload)))
	_, _ = p.Write(append(append(frame, payload...), 0xCE))
}

func be16(n uint16) []byte               { return binary.BigEndian.AppendUint16(nil, n) }
func be64(n uint64) []byte               { return binary.BigEndian.AppendUint64(nil, n) }
func short(s string) []byte              { return append([]byte{byte(len(s))}, s...) }
func long(s string) []byte               { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }
func cutShort(b []byte) (string, []byte) { return string(b[1 : 1+b[0]]), b[1+b[0]:] }

// properties reads the header frame of a message: its properties, and its headers by their names.
func properties(t testing.TB, frame []byte) map[string]any {
	t.Helper()
	found := map[string]any{}
	flags, b := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	text := func(name string, bit int) {
		if flags>>bit&1 == 1 {
			found[name], b = cutShort(b)
		}
	}
	text("content-type", 15)
	if flags>>13&1 == 1 {
		size := binary.BigEndian.Uint32(b)
		for table := b[4 : 4+size]; len(table) > 0; {
			var name string
			name, table = cutShort(table)
			found[name], table = value(t, table)
		}
		b = b[4+size:]
	}
	if flags>>12&1 == 1 {
		found["delivery-mode"], b = b[0], b[1:]
	}
	text("message-id", 7)
	if flags>>6&1 == 1 {
		found["timestamp"], b = int64(binary.BigEndian.Uint64(b)), b[8:]
	}
	text("type", 5)
	if len(b) > 0 {
		t.Errorf("%d bytes follow the properties", len(b))
	}
	return found
}

// value reads a header of the types that the sink sends.
func value(t testing.TB, b []byte) (any, []byte) {
	t.Helper()
	switch kind, b := b[0], b[1:]; kind {
	case 'S':
		n := 4 + binary.BigEndian.Uint32(b)
		return string(b[4:n]), b[n:]
	case 't':
		return b[0] == 1, b[1:]
	case 'l':
		return int64(binary.BigEndian.Uint64(b)), b[8:]
	default:
		t.Fatalf("a header of type %q", kind)
		return nil, nil
	}
}
