package kafka

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/jobrelay/relay/internal/services"
)

// holder is a proxy before a broker that keeps produce requests back and lets them through later, when whoever sent them
// has long given up: as a network does that was cut for a while, or a broker that was too busy to read.
type holder struct {
	broker, target, addr string // the broker as others reach it, and for who goes through this: its listener, the proxy

	mu       sync.Mutex
	holding  func() bool     // asked for each produce request: keep this one?
	recode   []kafkago.Error // for the answers to the next produce requests, in place of success
	held     []heldFrame
	listener net.Listener
	conns    []net.Conn
	all      sync.WaitGroup
}

type heldFrame struct {
	bytes []byte
	since time.Time
}

// withHolder opens a sink that reaches the real broker through a holder, and makes a topic of one partition.
func withHolder(t *testing.T) (h *holder, s *sink, topic string) {
	t.Helper()
	h = newHolder(t)
	return h, open(t, h.addr), newTopic(t, h.broker, 1)
}

// newHolder puts one before the real broker.
func newHolder(t *testing.T) *holder {
	t.Helper()
	target, addr := services.KafkaProxied(t)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{broker: services.Kafka(t), target: target, addr: addr, listener: l}
	h.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.all.Go(func() { h.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			c.Close()
		}
		h.mu.Unlock()
		h.all.Wait()
	})
	return h
}

func (h *holder) serve(client net.Conn) {
	defer client.Close()
	broker, err := net.Dial("tcp", h.target)
	if err != nil {
		return
	}
	defer broker.Close()
	h.mu.Lock()
	h.conns = append(h.conns, client, broker)
	h.mu.Unlock()
	asked := make(chan bool, 1) // whether the answer that comes is to a produce request
	h.all.Go(func() {
		defer client.Close()
		for produce := range asked {
			reply, err := readFrame(broker)
			if err != nil {
				return
			}
			if produce {
				h.alter(reply)
			}
			if _, err := client.Write(reply); err != nil {
				return
			}
		}
	})
	defer close(asked)
	in := bufio.NewReader(client)
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		produce := binary.BigEndian.Uint16(frame[4:]) == produceKey
		if produce && h.keep(frame) {
			continue
		}
		if _, err := broker.Write(frame); err != nil {
			return
		}
		asked <- produce
	}
}

// alter puts another code into an answer about one partition of one topic.
func (h *holder) alter(reply []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.recode) == 0 {
		return
	}
	name := int(binary.BigEndian.Uint16(reply[12:]))
	binary.BigEndian.PutUint16(reply[14+name+4+4:], uint16(h.recode[0]))
	h.recode = h.recode[1:]
}

// answerWith has the broker say something else of the next batches, which it has taken.
func (h *holder) answerWith(codes ...kafkago.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recode = codes
}

// readFrame reads a request or a reply, its size included.
func readFrame(in io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(in, frame[4:])
	return frame, err
}

func (h *holder) keep(frame []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holding == nil || !h.holding() {
		return false
	}
	h.held = append(h.held, heldFrame{frame, time.Now()})
	return true
}

// hold keeps the next n produce requests.
func (h *holder) hold(n int) {
	h.holdIf(func() bool { n--; return n >= 0 })
}

func (h *holder) holdIf(f func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holding = f
}

// letThrough sends what was held for so long, and returns what the broker says of partition 0 of the topic.
func (h *holder) letThrough(t *testing.T, topic string, older time.Duration) []kafkago.Error {
	t.Helper()
	h.mu.Lock()
	n := slices.IndexFunc(h.held, func(f heldFrame) bool { return time.Since(f.since) < older })
	if n < 0 {
		n = len(h.held)
	}
	held := h.held[:n]
	h.held = h.held[n:]
	h.mu.Unlock()
	var codes []kafkago.Error
	for _, f := range held {
		frame := f.bytes
		c, err := net.Dial("tcp", h.target)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		reply, err := readFrame(c)
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		code, _ := answered(t, reply, int16(binary.BigEndian.Uint16(frame[6:])), topic)
		codes = append(codes, code)
	}
	return codes
}
