// Package host knows the machine that services run on: where to keep downloads, which unprivileged user runs a
// server when we are root, which ports are free, and how processes that run at once keep out of each other's way.
package host
