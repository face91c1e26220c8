package main

import (
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/discard"
	"github.com/jobrelay/relay/sinks/kafka"
	"github.com/jobrelay/relay/sinks/rabbitmq"
	"github.com/jobrelay/relay/sinks/sqs"
	"github.com/jobrelay/relay/sinks/stdout"
)

// sinkTypes are the sinks that this binary knows. A new one is a line here.
func sinkTypes() []sinks.Type {
	return []sinks.Type{
		discard.Type(),
		kafka.Type(),
		rabbitmq.Type(),
		sqs.Type(),
		stdout.Type(),
	}
}

func typeNamed(name string) *sinks.Type {
	for _, t := range sinkTypes() {
		if t.Name == name {
			return &t
		}
	}
	return nil
}

func typeNames() []string {
	var names []string
	for _, t := range sinkTypes() {
		names = append(names, t.Name)
	}
	return names
}
