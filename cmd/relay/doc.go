// Command relay moves jobs from a Postgres table to Kafka, RabbitMQ and SQS.
//
// One file per command. wiring.go turns settings into the parts of a relay, sinktypes.go lists the sinks.
package main
