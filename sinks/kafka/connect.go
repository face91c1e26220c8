package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

// connectTimeout bounds the way to a usable connection: dial, TLS, versions, login.
const connectTimeout = 5 * time.Second

// dialer makes connections.
type dialer struct {
	tls   *tls.Config    // nil: none
	login sasl.Mechanism // nil: none
}

// dial connects to a broker. No message is at stake yet, so its errors say that nothing was sent.
func (d *dialer) dial(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() != nil {
			err = ended(ctx)
		}
		return nil, fmt.Errorf("connect to broker %s: %w", address, err)
	}
	forgetUnsent(raw, true)
	c := &conn{net: raw, raw: raw, address: address}
	if err := d.handshake(ctx, c); err != nil {
		c.close()
		return nil, fmt.Errorf("connect to broker %s: %w", address, d.explain(err))
	}
	return c, nil
}

func (d *dialer) handshake(ctx context.Context, c *conn) error {
	if d.tls != nil {
		config := d.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(c.address)
		secure := tls.Client(c.net, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			if ctx.Err() != nil {
				err = ended(ctx)
			}
			return stepError{"TLS handshake", noEOF(err)}
		}
		c.net = secure
	}
	c.in = bufio.NewReader(c.net)
	if err := negotiate(ctx, c); err != nil {
		return stepError{"ask for versions", err}
	}
	if d.login != nil {
		if err := authenticate(ctx, c, d.login); err != nil {
			return stepError{"log in", err}
		}
	}
	c.used = false
	return nil
}

// negotiate asks which versions of which APIs the broker knows.
func negotiate(ctx context.Context, c *conn) error {
	reply, err := c.ask(ctx, new(apiversions.Request))
	if err != nil {
		return err
	}
	ranges, code, err := parseVersions(reply[8:])
	if err != nil {
		return err
	}
	if code != 0 {
		return codeError(code, "")
	}
	produce := ranges[protocol.Produce]
	if produce.max < produceMinVersion || produce.min > produceMaxVersion {
		return fmt.Errorf("the broker speaks produce versions %d to %d, relay %d to %d", produce.min, produce.max, produceMinVersion, produceMaxVersion)
	}
	c.versions = make(map[protocol.ApiKey]int16, len(ranges))
	for key, r := range ranges {
		c.versions[key] = key.SelectVersion(r.min, r.max)
	}
	c.versions[protocol.Produce] = min(produce.max, produceMaxVersion)
	return nil
}

// authenticate logs in.
func authenticate(ctx context.Context, c *conn, login sasl.Mechanism) error {
	reply, err := c.request(ctx, &saslhandshake.Request{Mechanism: login.Name()})
	if err != nil {
		return err
	}
	shake := reply.(*saslhandshake.Response)
	if shake.ErrorCode == int16(kafkago.UnsupportedSASLMechanism) {
		return fmt.Errorf("%w (it knows %s)", codeError(shake.ErrorCode, ""), strings.Join(shake.Mechanisms, ", "))
	}
	if shake.ErrorCode != 0 {
		return codeError(shake.ErrorCode, "")
	}
	host, port, _ := net.SplitHostPort(c.address)
	number, _ := strconv.Atoi(port)
	ctx = sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: number})
	state, token, err := login.Start(ctx)
	for done := false; err == nil && !done; {
		var challenge []byte
		if challenge, err = sendToken(ctx, c, token); err == nil {
			done, token, err = state.Next(ctx, challenge)
		}
	}
	return err
}

// sendToken sends one step of the login. The last answer says how long the session may last.
func sendToken(ctx context.Context, c *conn, token []byte) ([]byte, error) {
	reply, err := c.request(ctx, &saslauthenticate.Request{AuthBytes: token})
	if errors.Is(err, errCut) { // some brokers refuse a password by closing the connection
		return nil, fmt.Errorf("%w: %w", kafkago.SASLAuthenticationFailed, err)
	}
	if err != nil {
		return nil, err
	}
	res := reply.(*saslauthenticate.Response)
	if res.ErrorCode != 0 {
		return nil, codeError(res.ErrorCode, res.ErrorMessage)
	}
	if res.SessionLifetimeMs > 0 {
		// Renewed by another connection, well before the broker would cut this one with a request in flight.
		c.expires = time.Now().Add(time.Duration(res.SessionLifetimeMs) * time.Millisecond * 8 / 10)
	}
	return res.AuthBytes, nil
}

// stepError is where a handshake failed.
type stepError struct {
	step string
	err  error
}

func (e stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e stepError) Unwrap() error { return e.err }

// explain adds what an operator can do. Brokers answer a wrong protocol or login in few and odd ways.
func (d *dialer) explain(err error) error {
	var (
		notTLS    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		step      stepError
	)
	_ = errors.As(err, &step)
	cut := errors.Is(err, errCut) || errors.Is(err, syscall.ECONNRESET)
	hint := ""
	switch {
	case errors.As(err, &notTLS), cut && step.step == "TLS handshake":
		hint = "is this a listener without TLS? then TLS must be false"
	case errors.Is(err, errExpectsTLS):
		hint = "set TLS to true, or use the port without TLS"
	case errors.As(err, &authority):
		hint = "set TLS_CA to the certificate that signs the brokers'"
	case errors.As(err, &host):
		hint = "the certificate must name the host by which the broker is advertised"
	case strings.Contains(err.Error(), "tls: certificate required"), strings.Contains(err.Error(), "tls: bad certificate"):
		hint = "the broker wants a client certificate: TLS_CERT and TLS_KEY"
	case errors.Is(err, kafkago.SASLAuthenticationFailed):
		hint = "check SASL_USERNAME, SASL_PASSWORD and SASL_MECHANISM"
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		hint = "set SASL_MECHANISM to one that the broker knows"
	case step.step == "log in" && (cut || errors.Is(err, kafkago.IllegalSASLState)):
		hint = "is this a listener without a login? then SASL_MECHANISM must be unset"
	case cut && d.tls == nil:
		hint = "does the listener expect TLS? or is it no Kafka broker?"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
