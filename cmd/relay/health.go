package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jobrelay/relay/config"
	"github.com/spf13/cobra"
)

const healthTimeout = 5 * time.Second

func healthCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "health",
		Short: "Ask a running relay whether it is alive, or ready",
		Long: `Ask the relay that listens on RELAY_ADMIN_ADDR whether its process is alive, or with --ready whether it is ready:
exit 0 or 1. For images without a shell, where a health check is a command.`,
		Args: cobra.NoArgs,
	}
	ready := c.Flags().Bool("ready", false, "ask for readiness: the database is usable and the relay doesn't drain")
	asJSON := jsonFlag(c, "the answer")
	c.RunE = func(c *cobra.Command, _ []string) error {
		addr, err := a.adminAddr()
		if err != nil {
			return err
		}
		return a.askHealth(c.Context(), addr, *ready, *asJSON)
	}
	return c
}

// adminAddr is where a relay with this environment listens. Other settings don't matter here.
func (a *app) adminAddr() (string, error) {
	cfg, problems, _ := config.Load(a.env, config.Need{})
	for _, p := range problems {
		if p.Name == "RELAY_ADMIN_ADDR" {
			return "", config.Problems{p}
		}
	}
	if cfg.AdminAddr == "" {
		return "", fmt.Errorf("RELAY_ADMIN_ADDR is off: nobody can be asked")
	}
	host, port, err := net.SplitHostPort(cfg.AdminAddr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

func (a *app) askHealth(ctx context.Context, addr string, ready, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: the relay is next door
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("asking the relay: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the relay's answer: %w", err)
	}
	ok := resp.StatusCode == http.StatusOK
	if asJSON {
		err = printJSON(a.stdout, map[string]any{"ok": ok, "code": resp.StatusCode, "address": addr, "answer": strings.TrimSpace(string(body))})
	} else {
		_, err = fmt.Fprintln(a.stdout, strings.TrimSpace(string(body)))
	}
	if err == nil && !ok {
		err = errReported
	}
	return err
}
