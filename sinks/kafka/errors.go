package kafka

import "errors"

var (
	// errClosed is why calls end when the sink closes.
	errClosed = errors.New("the sink is closed")
	// errTimeout is a deadline that passed.
	errTimeout = errors.New("no answer in time")
	// errCut is a connection that the broker closed where an answer was due.
	errCut = errors.New("the broker closed the connection")
	// errExpectsTLS is a TLS alert where Kafka's reply was due.
	errExpectsTLS = errors.New("the broker expects TLS")
	// errSkipped is why a message was not sent after an earlier one of its partition had failed.
	errSkipped = errors.New("not sent, to keep the order behind a message that failed")
	// errNoAPI is a request that the broker, by its versions, doesn't know.
	errNoAPI = errors.New("the broker doesn't have this API")
	// errBusy is a sequence that somebody else uses, errNoTurn one that was waited for in vain.
	errBusy   = errors.New("the sequence is in use")
	errNoTurn = errors.New("an earlier attempt must be settled first, and there was no turn")
)
