// Package rabbitmq publishes messages to RabbitMQ with publisher confirms.
//
// [Type] is all that the relay needs of it: settings, addresses and the sink come from there. docs/rabbitmq.md is the
// user's page, with the figures behind the defaults.
//
// Publish takes a generation (one connection, one channel) out of a small pool and owns it until it returns. A
// message is accepted when the broker confirmed it and did not return it. Where there is doubt (a connection cut, a
// confirm that didn't come) the generation is thrown away: a late confirm can't be taken for a later message's. The
// library's own recovery stays off for the same reason, it gives confirms to the wrong messages.
//
// RabbitMQ answers a publish that it can't take (no such exchange, no permission, too large) by closing the channel,
// some time later, with every message in flight on it. So what may be refused like that goes alone until its kind has
// been accepted once: see proof.
package rabbitmq
