package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/services"
)

// serverFault is a server that stops, crashes, or throws its clients out. The server of SQS keeps nothing over a stop: it has
// faults of its line only.
func (w *world) serverFault(rnd *rand.Rand) *fault {
	away := time.Duration(rnd.IntN(2500)) * time.Millisecond
	switch rnd.IntN(10) {
	case 0, 1:
		return &fault{name: "sessions of Postgres terminated", on: history.OnDatabase, begin: func() { w.terminate("") }, end: func() {}}
	case 2:
		return stopped("Postgres stopped", history.OnDatabase, w.database, away)
	case 3, 4:
		f := crashed("Postgres crashed", history.OnDatabase, w.database, away)
		f.forgets = true
		return f
	case 5:
		return stopped("Kafka stopped", "kafka", w.broker(rnd), away)
	case 6:
		return crashed("Kafka crashed", "kafka", w.broker(rnd), away)
	case 7:
		return stopped("RabbitMQ stopped", "rabbitmq", w.rabbit, away)
	case 8:
		return &fault{name: "memory alarm of RabbitMQ", on: "rabbitmq", lasts: away + publishTimeout,
			begin: func() { w.rabbit.Ctl("set_vm_memory_high_watermark", "0.000001") },
			end:   func() { w.rabbit.Ctl("set_vm_memory_high_watermark", "absolute", "2GB") }}
	default:
		return &fault{name: "connections of RabbitMQ closed", on: "rabbitmq",
			begin: w.closeConnections, end: func() {}}
	}
}

// clusterFault moves the lead of all partitions, or takes one broker of several away.
func (w *world) clusterFault(rnd *rand.Rand) *fault {
	away := time.Duration(rnd.IntN(5000)) * time.Millisecond
	switch rnd.IntN(4) {
	case 0:
		return stopped("one of the Kafka brokers stopped", "kafka", w.broker(rnd), away)
	case 1:
		return crashed("one of the Kafka brokers crashed", "kafka", w.broker(rnd), away)
	default:
		order := rand.New(rand.NewPCG(rnd.Uint64(), 4))
		return &fault{name: "leaders of Kafka moved", on: "kafka", begin: func() { w.moveLeaders(order) }, end: func() {}}
	}
}

func stopped(name, on string, server *services.Own, away time.Duration) *fault {
	return &fault{name: name, on: on, lasts: away, begin: server.Stop, end: server.Start}
}

func crashed(name, on string, server *services.Own, away time.Duration) *fault {
	return &fault{name: name, on: on, lasts: away, begin: server.Kill, end: server.Start}
}
