package history

import "time"

// History is a whole run, as its witnesses wrote it down.
type History struct {
	Source       string           // first half of every message id
	Routes       map[string]Route // by kind
	Transactions []Transaction
	Arrivals     []Arrival // of each destination in the order in which a consumer got them
	Work         []Work    // of old workers
	Rows         []Row     // the table at the end
	Changes      []Change  // of each job in the order in which they were made
	Faults       []Fault
	Texts        []Text            // logs, metrics, errors: what people and machines may read
	Canaries     map[string]string // what must be in none of them, by what it is
	Slack        time.Duration     // how long after its end a fault is still felt
}

// Route is what the relays were told of a kind, or what the run did with it.
type Route struct {
	To       []string // destinations
	Ordered  bool     // first arrivals of a key come in the order of ids
	Shared   bool     // old workers serve what relays don't own
	Share    int      // percent that relays own of a shared kind
	Replayed bool     // each job of the kind was replayed once
	Poison   bool     // no broker can take these jobs: they die at once
	// Known are destinations that know a message again and accept it without keeping it twice: a FIFO queue, and Kafka
	// where the relay numbers what it sends for the order of keys.
	Known map[string]bool
}

// Fate is what a producer knows of its transaction.
type Fate int

// Unknown is for a connection that broke during COMMIT: whether the jobs are there is looked up afterwards.
const (
	Committed Fate = iota
	RolledBack
	Unknown
)

// Transaction is one of a producer's.
type Transaction struct {
	Fate  Fate
	Kind  string
	IDs   []int64
	Found []int64 // those of an Unknown one that were there when it was looked up
}

// Arrival is a message as a consumer saw it.
type Arrival struct {
	To      string // destination
	ID      string // SOURCE/ID
	Replay  int64  // id of the copy, 0 without
	Attempt int
	Key     string
	Payload string
}

// Work is a job that an old worker carried out.
type Work struct {
	Job int64
	At  time.Time
}

// Row is a job as the table has it at the end.
type Row struct {
	ID          int64
	Kind        string
	Key         string
	Payload     string
	Status      string
	Attempts    int
	MaxAttempts int
	LastError   string
	Token       bool // a relay claimed it last
	Delivered   []string
	ReplayOf    int64 // 0 when it is no copy
	Created     time.Time
}

// Change is one change of a job's status or token, noted in the transaction that made it.
type Change struct {
	Job                int64
	By                 string // the relay process, or Old
	At                 time.Time
	From, To           string // status
	TokenFrom, TokenTo int64  // 0 is none
	AttemptsFrom       int
	Attempts           int
	Expired            bool     // the lease that it ended was over
	Accepted           []string // destinations that it added to the delivered ones
	Delivered          []string // all of them afterwards
	Error              string
}

// Old is who old workers are in Change.By.
const Old = "old"

// Places where faults strike, beside the brokers' own names, as destinations begin.
const (
	OnRelay    = "relay"
	OnDatabase = "postgres"
)

// Fault is what the run did to somebody.
type Fault struct {
	Name     string // what was done
	On       string // OnRelay, OnDatabase, or a broker
	Relay    string // the only process that it concerns, "" for all
	From, To time.Time
	Struck   time.Time // when it had struck for certain, which is a little after From; zero is From
	Harmless bool      // it explains nothing: an orderly shutdown that ended in time
	Forgets  bool      // the database lost what it hadn't been told to keep: claims
	Resent   bool      // what the broker had taken it said no to, so that a relay sends it again within the same claim
}

// Text is something that the relays let out.
type Text struct{ Name, Text string }
