// Package postgres starts private Postgres servers: for relay demo, and for tests.
//
//	server, err := postgres.Start(ctx, postgres.Options{Logger: log})
//	defer server.Stop()
//	pool, err := pgxpool.New(ctx, server.URL)
//
// The binaries are downloaded once and kept in the cache folder (see host.CacheDir); the data lives in a folder
// there that Stop removes. Root, whom Postgres refuses to serve, runs it as an unprivileged user. It listens on
// 127.0.0.1 only, on a free port, with a random password and no Unix socket. On Linux it ends when its owner is
// killed; the next Start removes what such a server left.
package postgres
