"""Certificates of every kind, good and bad, made in memory by an authority of the test."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = datetime.timedelta(days=1)


class Authority:
    """An authority, whose certificate and those that it issues are PEM files in `directory`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = directory / f"{name}.pem"
        builder = _builder(self._name, self._name, self._key, DAY * -1, DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        usages: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
        begins: datetime.timedelta = DAY * -1,
        ends: datetime.timedelta = DAY,
    ) -> Path:
        """Return a PEM file with a key and its certificate, valid from now + begins to now + ends."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key, begins, ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        path = self._directory / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + made.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def server_context(self, certificate: Path, *, requires: bool = False) -> ssl.SSLContext:
        """Return the context of a server that trusts this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(self.certificate)
        context.verify_mode = ssl.CERT_REQUIRED if requires else ssl.CERT_NONE
        return context

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority alone."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.timedelta,
    ends: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now + begins).not_valid_after(now + ends)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
