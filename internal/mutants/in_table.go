package main

// inTable are edits of the way in: enqueueing and what the table does by itself.
func inTable() []mutant {
	return []mutant{
		{"notify without a guard", "P9", "migrations", "TestRelayNotifyIsGuarded",
			"migrations/sql/00002_helpers.sql",
			"WHERE pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended({{.Lock \"notify\"}}, 0))",
			"WHERE {{.Lock \"notify\"}} IS NOT NULL"},
		{"NUL in a payload passes", "P1", "outbox", "TestInvalidJobs",
			"outbox/scanner.go",
			"\tcase code == 0:\n",
			"\tcase code == 0 && s.encoded && !s.encoded:\n"},
		{"NUL in a key passes", "P1", "outbox", "TestInvalidJobs",
			"outbox/job.go",
			"case strings.IndexByte(s, 0) >= 0:",
			"case strings.IndexByte(s, 0) > len(s):"},
		{"jobs are checked one by one while others are inserted", "P2", "outbox", "TestB01RefusalLeavesTheTransactionUsable",
			"outbox/job.go",
			"\t\t\treturn nil, bad\n\t\t}\n\t}\n\treturn rows, nil",
			"\t\t\treturn rows[:i], nil\n\t\t}\n\t}\n\treturn rows, nil"},
		{"a pool passes for a transaction", "P2", "outbox", "TestOnlyTransactionsCompile",
			"outbox/enqueue.go",
			"\tCommit(ctx context.Context) error\n\tRollback(ctx context.Context) error\n",
			""},
		{"jobs that a trigger drops count as enqueued", "P1", "outbox", "TestDroppedRowsAreAnError",
			"outbox/enqueue.go",
			"if len(got) != n {",
			"if len(got) > n {"},
		{"a dead job has no reason", "P1", "migrations", "TestStamping",
			"migrations/sql/00003_columns.sql",
			"NEW.last_error := 'no reason recorded';",
			"NULL;"},
		{"finished rows aren't stamped", "P1", "migrations", "TestStamping",
			"migrations/sql/00003_columns.sql",
			"NEW.finished_at := coalesce(NEW.finished_at, pg_catalog.statement_timestamp());",
			"NULL;"},
		{"migrating down loses jobs", "P1", "migrations", "TestDownRefusesToLoseData",
			"migrations/sql/00001_table.sql",
			"IF EXISTS (SELECT FROM {{.Table}}) THEN",
			"IF NOT EXISTS (SELECT FROM {{.Table}}) THEN"},
	}
}

// inText are edits that put payloads or secrets where somebody reads them.
func inText() []mutant {
	return []mutant{
		{"an error repeats the payload", "P10", "sinks/sqs", "TestFake/too-large",
			"sinks/sqs/publish.go",
			"e.size, address, limit)",
			"e.size, address+e.body[:40], limit)"},
		{"the AWS SDK's text about credentials goes on", "P10", "sinks/sqs", "TestCredentialProcessStaysSecret",
			"sinks/sqs/describe.go",
			"&unmade{detail(err)}",
			"&unmade{err.Error()}"},
		{"a refused payload is repeated", "P10", "outbox", "TestInvalidJobs",
			"outbox/payload.go",
			"invalidAt(\"payload\", f.place(), f.rule)",
			"invalidAt(\"payload\", f.place(), f.rule+string(text))"},
		{"a secret prints", "P10", "config", "TestSecretNeverPrints",
			"config/secret.go",
			"func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }",
			"func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s)) }"},
		{"a broker's URL prints", "P10", "sinks/rabbitmq", "TestSecretIsNeverPrinted",
			"sinks/rabbitmq/settings.go",
			"func (secret) String() string               { return \"***\" }",
			"func (s secret) String() string { return string(s) }"},
	}
}
