package sinks

// String gives the name used in metrics and logs.
func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Unavailable:
		return "unavailable"
	case Rejected:
		return "rejected"
	case Failed:
		return "failed"
	default:
		return "unknown"
	}
}

// String gives the name used in logs.
func (s Scope) String() string {
	switch s {
	case ScopeAddress:
		return "address"
	case ScopeParent:
		return "parent"
	case ScopeSink:
		return "sink"
	default:
		return "message"
	}
}
