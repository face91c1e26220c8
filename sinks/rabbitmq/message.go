package rabbitmq

import (
	"fmt"
	"iter"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jobrelay/relay/sinks"
)

const contentType = "content-type"

// checkMessage says which rule of the protocol a message breaks. The library would notice some of them too, but by
// closing the connection, with all that is in flight on it.
func checkMessage(m *sinks.Message, frame int) error {
	for _, s := range []struct{ what, text string }{{"message id", m.ID}, {"kind", m.Kind}, {contentType, m.ContentType}} {
		if err := checkShort(s.what, s.text); err != nil {
			return err
		}
	}
	for _, h := range m.Headers {
		if len(h.Name) > maxShort {
			return fmt.Errorf("the name of header %q has %d bytes, RabbitMQ takes at most %d", h.Name[:32]+"…", len(h.Name), maxShort)
		}
		if h.Name == "CC" || h.Name == "BCC" { // in another case they are names like any other
			return fmt.Errorf("header %q: RabbitMQ reads it as more routing keys, and a job's data doesn't route", h.Name)
		}
		switch h.Value.(type) {
		case string, bool, int64:
		default:
			return fmt.Errorf("header %q has a value of type %T, which can't be sent", h.Name, h.Value)
		}
	}
	if size := headerSize(m); size > frame-frameOverhead {
		return fmt.Errorf("the headers have %d bytes, this RabbitMQ takes at most %d (frame_max)", size, frame-frameOverhead)
	}
	return nil
}

// frameOverhead is what surrounds the content of a frame. A body is cut into frames, headers must fit into one.
const frameOverhead = 8

// headerSize is the size of the frame that carries a message's properties and headers, as AMQP 0-9-1 encodes it.
func headerSize(m *sinks.Message) int {
	short := func(s string) int { return 1 + len(s) }
	size := 14 + short(m.ContentType) + 1 + short(m.ID) + 8 + short(m.Kind) + 4
	for name, value := range header(m) {
		size += short(name) + 1 // and the type
		switch v := value.(type) {
		case string:
			size += 4 + len(v)
		case bool:
			size++
		default:
			size += 8
		}
	}
	return size
}

// publishing is the message as RabbitMQ gets it: persistent, and with the body as it is.
func publishing(m *sinks.Message) amqp.Publishing {
	p := amqp.Publishing{
		MessageId:    m.ID,
		Type:         m.Kind,
		ContentType:  m.ContentType,
		DeliveryMode: amqp.Persistent,
		Headers:      make(amqp.Table, len(m.Headers)+5),
		Body:         m.Payload,
	}
	if m.Time.Unix() >= 0 { // the property is an unsigned number of seconds; relay-time has any time
		p.Timestamp = m.Time.Truncate(time.Second)
	}
	for name, value := range header(m) {
		p.Headers[name] = value
	}
	return p
}

// header yields all headers of a message with their typed values: the job's, but for the content type, which is a
// property, and then the relay's own, so that nothing can stand in their place.
func header(m *sinks.Message) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, h := range m.Headers {
			if !strings.EqualFold(h.Name, contentType) && !yield(h.Name, h.Value) {
				return
			}
		}
		if !yield(sinks.HeaderKind, m.Kind) || !yield(sinks.HeaderAttempt, int64(m.Attempt)) ||
			!yield(sinks.HeaderTime, m.Time.UTC().Format(sinks.TimeFormat)) {
			return
		}
		if m.Key != nil && !yield(sinks.HeaderKey, *m.Key) {
			return
		}
		if m.Replay != 0 {
			yield(sinks.HeaderReplay, m.Replay)
		}
	}
}
