package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serving starts a server on an address of its own.
func serving(t *testing.T, change func(*http.Server)) string {
	t.Helper()
	s := subject{health: healthy()}.server()
	if change != nil {
		change(s.http)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
		defer cancel()
		_ = s.Close(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestEveryAnswerHasSecurityHeaders(t *testing.T) {
	t.Parallel()
	s := subject{health: healthy()}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/api/status", "/style.css", "/nowhere"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			_, _, h := s.get(t, method, path)
			for name, want := range map[string]string{
				"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff",
				"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			} {
				if !strings.Contains(h.Get(name), want) {
					t.Errorf("%s %s: %s is %q, want %s", method, path, name, h.Get(name), want)
				}
			}
			if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "" {
				t.Errorf("%s %s: opens itself to others: %v", method, path, h)
			}
		}
	}
}

// There is nothing but what is named: no folder, no embedded file under its own name, no profiler.
func TestServesNothingElse(t *testing.T) {
	t.Parallel()
	addr := serving(t, nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/page.html", "/static/", "/api", "/api/", "/api/jobs", "/debug/pprof/", "/debug/vars", "/style.css/", "/.git/config", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd"} {
		resp, err := client.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || len(body) > 100 {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
		}
	}
	resp, err := client.Head("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD /: %d", resp.StatusCode)
	}
}

func TestLargeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	conn := dial(t, serving(t, nil))
	go func() {
		_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 4*maxHeader))
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("%q, %v", line, err)
	}
}

// A body is of no use here: it is never read to its end.
func TestEndlessBodyIsCut(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "POST"} {
		conn := dial(t, serving(t, nil))
		if _, err := fmt.Fprintf(conn, "%s /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", method); err != nil {
			t.Fatal(err)
		}
		chunk := []byte("10000\r\n" + strings.Repeat("x", 1<<16) + "\r\n")
		sent := 0
		for sent < 256<<20 {
			n, err := conn.Write(chunk)
			sent += n
			if err != nil {
				break
			}
		}
		if sent >= 256<<20 {
			t.Errorf("%s: %d bytes of a body were taken", method, sent)
		}
	}
}

// A client that says nothing, or says it slowly, loses its connection.
func TestSlowClientsAreCut(t *testing.T) {
	t.Parallel()
	srv := subject{health: healthy()}.server().http
	if srv.ReadHeaderTimeout <= 0 || srv.ReadTimeout <= 0 || srv.WriteTimeout <= 0 || srv.IdleTimeout <= 0 || srv.MaxHeaderBytes <= 0 {
		t.Errorf("a limit is missing: %+v", srv)
	}
	soon := func(s *http.Server) {
		s.ReadHeaderTimeout, s.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond
	}
	for name, says := range map[string]string{
		"half a header": "GET /healthz HTTP/1.1\r\nHost:", "nothing": "", "nothing after an answer": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn := dial(t, serving(t, soon))
		if _, err := conn.Write([]byte(says)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection stays open", name)
		}
	}
}
