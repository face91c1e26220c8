package ops

// Level says how a finding of `relay check` is meant.
type Level string

const (
	OK   Level = "ok"
	Warn Level = "warn" // the relay runs, but not as well as it could
	Fail Level = "fail" // the relay can't do its work
)

// Finding is one line of `relay check`.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}
