package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/jobrelay/relay/internal/history"
	"github.com/jobrelay/relay/internal/stage"
)

// lineFault is a network that hangs, loses or breaks, between one server and one relay or all.
func (w *world) lineFault(rnd *rand.Rand) *fault {
	servers := []string{history.OnDatabase, "kafka", "rabbitmq", "sqs"}
	on := servers[rnd.IntN(len(servers))]
	f := &fault{on: on, lasts: time.Second + time.Duration(rnd.IntN(3000))*time.Millisecond}
	if rnd.IntN(4) == 0 {
		f.lasts += publishTimeout // so that whoever waits for a reply gives up
	}
	lines := []*stage.Line{}
	for _, r := range w.relays {
		lines = append(lines, r.lines[on]...)
	}
	if rnd.IntN(3) > 0 {
		f.relay = w.relays[rnd.IntN(relayCount)]
		lines = f.relay.lines[on]
	}
	direction := []stage.Direction{stage.Up, stage.Down}[rnd.IntN(2)]
	var act func(*stage.Line)
	f.name, act = lineAct(rnd, direction)
	f.name = "line to " + on + " " + f.name
	f.begin = func() {
		for _, l := range lines {
			act(l)
		}
	}
	f.end = func() {
		for _, l := range lines {
			l.Heal()
		}
	}
	return f
}

// lineAct is what happens to a line.
func lineAct(rnd *rand.Rand, d stage.Direction) (string, func(*stage.Line)) {
	delay := time.Duration(100+rnd.IntN(1500)) * time.Millisecond
	bytes, rate := int64(rnd.IntN(5000)), int64(1+rnd.IntN(8))
	way := map[stage.Direction]string{stage.Up: "requests", stage.Down: "replies"}[d]
	switch rnd.IntN(6) {
	case 0:
		return "slow", func(l *stage.Line) { l.Delay(d, delay) }
	case 1, 2:
		return "swallows " + way, func(l *stage.Line) { l.Swallow(d) }
	case 3:
		return "cut in the middle of " + way, func(l *stage.Line) { l.CutAfter(d, bytes) }
	case 4:
		return "lets little through", func(l *stage.Line) { l.Slow(d, rate) }
	default:
		return "cut", func(l *stage.Line) { l.Cut() }
	}
}
