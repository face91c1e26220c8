package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	// metadataTTL is how long a topic's layout is trusted without a reason to doubt it: how soon new partitions are
	// used. A leader that has moved gives a reason at once.
	metadataTTL = 30 * time.Second
	// metadataPause is the shortest time between two questions about the same topics, so that a cluster in trouble
	// isn't asked by every batch at once.
	metadataPause = 250 * time.Millisecond
	// topicsKept is how many unused topics are remembered: addresses may come from job data.
	topicsKept = 10_000
)

// cluster knows the brokers and who leads what, of the topics in use only.
type cluster struct {
	dialer      *dialer
	bootstrap   []string
	maxInFlight int
	asking      chan struct{} // one question at a time; the others wait and share its answer

	mu      sync.Mutex
	pools   map[string]*pool // by host:port
	brokers map[int32]string // host:port by node id
	topics  map[string]*topic
	failed  time.Time // when the last question failed
	failure error
	closed  bool
}

// topic is what is remembered of one.
type topic struct {
	name   string
	sticky sticky
	limit  limit

	layout *layout   // nil: never asked. Under the cluster's lock, replaced as a whole
	asked  time.Time // when the question was sent that layout answers
}

func newCluster(d *dialer, bootstrap []string, maxInFlight int) *cluster {
	return &cluster{
		dialer: d, bootstrap: bootstrap, maxInFlight: maxInFlight, asking: make(chan struct{}, 1),
		pools: map[string]*pool{}, brokers: map[int32]string{}, topics: map[string]*topic{},
	}
}

// described is one topic with the layout that a batch works with.
type described struct {
	topic *topic
	*layout
}

// describe returns the topics of those names. Layouts from before since are asked for again. An error means that no
// broker could say, or that ctx ended.
func (c *cluster) describe(ctx context.Context, names []string, since time.Time) (map[string]described, error) {
	known, stale := c.known(names, since)
	if len(stale) == 0 {
		return known, nil
	}
	start := time.Now()
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, ended(ctx)
	}
	defer func() { <-c.asking }()

	if known, stale = c.known(names, since); len(stale) == 0 { // somebody else has asked
		return known, nil
	}
	if err := c.failedSince(start); err != nil {
		return nil, err
	}
	if err := sleep(ctx, c.pauseLeft(stale)); err != nil {
		return nil, err
	}
	answered, err := c.ask(ctx, stale)
	if err != nil {
		return nil, err
	}
	maps.Copy(known, answered) // the others stay as they were found: they may be forgotten by now
	return known, nil
}

// known returns what is known of the topics and the names that must be asked for.
func (c *cluster) known(names []string, since time.Time) (map[string]described, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[string]described, len(names))
	var stale []string
	now := time.Now()
	for _, name := range names {
		t := c.topics[name]
		if t == nil || t.layout == nil {
			stale = append(stale, name)
			continue
		}
		found[name] = described{t, t.layout}
		ttl := metadataTTL
		if t.layout.code != 0 {
			ttl = metadataPause // it may exist now
		}
		if t.asked.Before(since) || now.Sub(t.asked) > ttl {
			stale = append(stale, name)
		}
	}
	return found, stale
}

func (c *cluster) failedSince(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed.After(t) {
		return c.failure
	}
	return nil
}

// pauseLeft is how long to wait before these topics may be asked for again.
func (c *cluster) pauseLeft(names []string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := time.Duration(0)
	for _, name := range names {
		if t := c.topics[name]; t != nil {
			left = max(left, metadataPause-time.Since(t.asked))
		}
	}
	return left
}

// ask asks one broker after the other about topics until one answers, remembers what it says, and returns it.
func (c *cluster) ask(ctx context.Context, names []string) (map[string]described, error) {
	asked := time.Now()
	res, err := c.metadata(ctx, names)
	if err == nil {
		return c.learn(res, names, asked), nil
	}
	if ctx.Err() == nil { // the brokers' fault, not the caller's: those who wait needn't find out as well
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed, c.failure = time.Now(), err
	}
	return nil, err
}

// metadata asks any broker. No names asks for the brokers alone.
func (c *cluster) metadata(ctx context.Context, names []string) (*metadata.Response, error) {
	var failure error
	for _, address := range c.candidates() {
		res, err := c.metadataFrom(ctx, address, names)
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, joined(failure, err)
		}
		failure = joined(failure, err)
	}
	if failure == nil {
		failure = errClosed
	}
	return nil, failure
}

// joined puts two errors in one line.
func joined(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

func (c *cluster) metadataFrom(ctx context.Context, address string, names []string) (*metadata.Response, error) {
	if names == nil {
		names = []string{} // null would mean all topics of the cluster
	}
	reply, err := c.call(ctx, address, &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return nil, err
	}
	return reply.(*metadata.Response), nil
}

// call sends one broker a request that isn't a message and waits for no turn.
func (c *cluster) call(ctx context.Context, address string, msg protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p := c.pool(address)
	if p == nil {
		return nil, errClosed
	}
	b, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	defer p.put(b)
	fresh := !b.used
	reply, err := b.request(ctx, msg)
	if err == nil {
		return reply, nil
	}
	if errors.Is(err, errCut) && fresh && c.dialer.login == nil {
		err = fmt.Errorf("%w: does the listener ask for a login? then set SASL_MECHANISM", err)
	}
	return nil, fmt.Errorf("ask broker %s: %w", address, err)
}

// candidates are the brokers to ask, in random order: those that we have a connection with first, then those of the
// settings, then the others.
func (c *cluster) candidates() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := slices.Clone(c.bootstrap)
	others := slices.Collect(maps.Values(c.brokers))
	for _, list := range [][]string{given, others} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	seen := map[string]bool{}
	list := slices.DeleteFunc(append(given, others...), func(a string) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
	slices.SortStableFunc(list, func(a, b string) int { return c.cold(a) - c.cold(b) })
	return list
}

func (c *cluster) cold(address string) int {
	if p := c.pools[address]; p != nil && p.hasIdle() {
		return 0
	}
	return 1
}

// learn takes over what an answer says about the brokers and the topics that it was asked for, and returns these.
func (c *cluster) learn(res *metadata.Response, names []string, asked time.Time) map[string]described {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers = make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	c.dropPools()
	answered := make(map[string]*layout, len(res.Topics))
	for i := range res.Topics {
		answered[res.Topics[i].Name] = newLayout(&res.Topics[i])
	}
	c.forgetTopics(asked)
	found := make(map[string]described, len(names))
	for _, name := range names {
		t := c.topics[name]
		if t == nil {
			t = &topic{name: name}
			c.topics[name] = t
		}
		t.asked, t.layout = asked, answered[name]
		if t.layout == nil { // never left open, or it would be asked for without a pause
			t.layout = &layout{code: int16(kafkago.UnknownTopicOrPartition)}
		}
		found[name] = described{t, t.layout}
	}
	return found
}

func newLayout(t *metadata.ResponseTopic) *layout {
	l := &layout{code: t.ErrorCode, leaders: make(map[int]int32, len(t.Partitions))}
	for _, p := range t.Partitions {
		id := int(p.PartitionIndex)
		l.ids = append(l.ids, id)
		l.leaders[id] = p.LeaderID
	}
	slices.Sort(l.ids)
	if l.code == 0 && len(l.ids) == 0 {
		l.code = int16(kafkago.LeaderNotAvailable)
	}
	return l
}

// dropPools closes the connections to brokers that have gone.
func (c *cluster) dropPools() {
	kept := map[string]bool{}
	for _, a := range c.bootstrap {
		kept[a] = true
	}
	for _, a := range c.brokers {
		kept[a] = true
	}
	for a, p := range c.pools {
		if !kept[a] {
			p.close()
			delete(c.pools, a)
		}
	}
}

// forgetTopics keeps the memory bounded when addresses come from job data.
func (c *cluster) forgetTopics(now time.Time) {
	if len(c.topics) < topicsKept {
		return
	}
	maps.DeleteFunc(c.topics, func(_ string, t *topic) bool { return now.Sub(t.asked) > metadataTTL })
}

// pool returns the connections to a broker, nil once the cluster is closed.
func (c *cluster) pool(address string) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	p := c.pools[address]
	if p == nil {
		p = newPool(c.dialer, address, c.maxInFlight)
		c.pools[address] = p
	}
	return p
}

// leader returns the connections to a node, nil when the cluster doesn't know it.
func (c *cluster) leader(node int32) *pool {
	c.mu.Lock()
	address, ok := c.brokers[node]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	return c.pool(address)
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, p := range c.pools {
		p.close()
	}
	clear(c.pools)
}
