// Package kafka publishes to Apache Kafka and whatever speaks its protocol. The address is the topic.
//
// One batch becomes one produce request per broker. [Type] is what cmd/relay lists; from there, in the order of a
// message's way:
//
//	settings.go   RELAY_<NAME>_…, their ranges, what a topic may be called
//	sink.go       open, publish, close
//	publish.go    the way of one batch: partition, group by leader, send, and once more where a leader has moved
//	run.go        what waits for what where the order of keys counts
//	partition.go  which partition a key belongs to
//	record.go     the record batch, Kafka's own form of many messages
//	frame.go      the produce request and its reply
//	send.go       one request to one broker and what becomes of its messages
//	number.go     the stamps of its ordered record batches, and what an answer means for them
//	sequence.go   the stamps of a partition; producer.go has the producer ids
//	ruling.go     what each of Kafka's error codes means for a message
//	cluster.go    which broker leads what
//	pool.go       connections and the bound on requests in flight, per broker
//	conn.go       one connection; connect.go makes it (TLS, SASL) and explains why it can't
//	check.go      whether a topic takes messages
//
// It is built on the protocol packages of segmentio/kafka-go, without its Writer and Transport: docs/kafka.md has the
// reasons and the figures.
package kafka
