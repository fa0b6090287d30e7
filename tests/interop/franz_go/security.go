package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// security returns options for the listener that the environment describes: CA (for TLS), CERTIFICATE (a PEM file with its key),
// MECHANISM with SASL_USER and SASL_PASSWORD, which is the token for OAUTHBEARER.
func security() ([]kgo.Opt, error) {
	var options []kgo.Opt
	if path := os.Getenv("CA"); path != "" {
		authority, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(authority)
		if path := os.Getenv("CERTIFICATE"); path != "" {
			certificate, err := tls.LoadX509KeyPair(path, path)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if name := os.Getenv("MECHANISM"); name != "" {
		user, password := os.Getenv("SASL_USER"), os.Getenv("SASL_PASSWORD")
		mechanism, known := map[string]sasl.Mechanism{
			"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
			"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
			"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: password}.AsMechanism(),
		}[name]
		if !known {
			return nil, fmt.Errorf("no mechanism %s", name)
		}
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}
