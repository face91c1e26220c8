package native

import "github.com/jobrelay/relay/internal/services/postgres"

// Images are what docker-compose.yml runs where the native way runs the same version. RabbitMQ is the exception: natively
// it's the system's own (Debian 12: 3.10.8), because its makers publish it in no place that every machine can reach.
const (
	PostgresImage  = "postgres:" + postgres.Version
	KafkaImage     = "apache/kafka:" + KafkaVersion
	ElasticMQImage = "softwaremill/elasticmq-native:" + ElasticMQVersion
	RabbitMQImage  = "rabbitmq:4.2.9-management"
)
