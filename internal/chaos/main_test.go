package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/jobrelay/relay/internal/services"
	"github.com/jobrelay/relay/internal/stage"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "what the run's faults and jobs are made from; 0: any")
	forFlag   = flag.Duration("for", 0, "how long faults are injected; 0: 12s, 3m in the long run")
	nodesFlag = flag.Int("brokers", 0, "how many brokers Kafka has; 0: 1, 3 in the long run")
	soakFlag  = flag.Duration("soak", 0, "how long the soak is; 0: 30s, 10m in the long run")
	relayFlag = flag.String("relay", "", "a relay to run instead of this one's: to see whether the run finds what is wrong with it")
)

// binary is the relay under test, with the race detector.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	zerolog.SetGlobalLevel(zerolog.Disabled) // the lines write of every byte that they lose
	if testing.Short() {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "relay-chaos-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if binary = *relayFlag; binary == "" {
		binary = filepath.Join(dir, "relay")
		err = stage.Build(binary, "-race")
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// seed is the one given, or any.
func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1_000_000) + 1
}

// span is how long faults are injected.
func span() time.Duration {
	switch {
	case *forFlag > 0:
		return *forFlag
	case services.Long():
		return 3 * time.Minute
	default:
		return 12 * time.Second
	}
}

// brokers is how many Kafka has.
func brokers() int {
	switch {
	case *nodesFlag > 0:
		return *nodesFlag
	case services.Long():
		return 3
	default:
		return 1
	}
}
