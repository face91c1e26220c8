package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

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
		return w.resent(stopped("Kafka stopped", "kafka", w.broker(rnd), away))
	case 6:
		return w.resent(crashed("Kafka crashed", "kafka", w.broker(rnd), away))
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
		return w.resent(stopped("one of the Kafka brokers stopped", "kafka", w.broker(rnd), away))
	case 1:
		return w.resent(crashed("one of the Kafka brokers crashed", "kafka", w.broker(rnd), away))
	default:
		order := rand.New(rand.NewPCG(rnd.Uint64(), 4))
		var moved kadm.AlterPartitionAssignmentsReq
		return w.resent(&fault{name: "leaders of Kafka moved", on: "kafka",
			begin: func() { moved = w.moveLeaders(order) }, end: func() { w.awaitLeaders(moved) }})
	}
}

// resent marks a fault that moves the lead, where several brokers can have it. A leader that loses it while it waits for
// the replicas says so, and the relay sends to the next one, who has the messages already.
func (w *world) resent(f *fault) *fault {
	f.resent = len(w.brokers) > 1
	return f
}

func stopped(name, on string, server *services.Own, away time.Duration) *fault {
	return &fault{name: name, on: on, lasts: away, begin: server.Stop, end: server.Start}
}

func crashed(name, on string, server *services.Own, away time.Duration) *fault {
	return &fault{name: name, on: on, lasts: away, begin: server.Kill, end: server.Start}
}
