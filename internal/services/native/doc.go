// Package native starts Kafka, RabbitMQ and ElasticMQ as ordinary processes, for machines without a container
// engine: Kafka and ElasticMQ from Maven Central on an installed Java, RabbitMQ from the system's package, as a
// node of its own. Everything listens on 127.0.0.1, on free ports, with its data in a folder that Stop removes.
package native
