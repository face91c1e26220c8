package native

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Certificates are made anew for every server: an authority, and a server's and a client's certificate from it, in PEM
// form. The server's is for localhost and the loopback addresses.
type Certificates struct {
	Authority         string
	Server, ServerKey string
	client, clientKey string
}

const lifetime = 7 * 24 * time.Hour // a set that `services up` keeps may live for days

// NewCertificates makes all of them.
func NewCertificates() (*Certificates, error) {
	template := certificate("relay test authority", 1)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	issuer := &issuer{template, key}
	c := &Certificates{Authority: block("CERTIFICATE", der)}
	if c.Server, c.ServerKey, err = issuer.issue("localhost", 2); err != nil {
		return nil, err
	}
	if c.client, c.clientKey, err = issuer.issue("relay", 3); err != nil {
		return nil, err
	}
	return c, nil
}

type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (i *issuer) issue(name string, serial int64) (cert, key string, err error) {
	template := certificate(name, serial)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.certificate, private.Public(), i.key)
	if err != nil {
		return "", "", fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	// PKCS #8 is the only form that Kafka reads.
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8), nil
}

func certificate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
	}
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
