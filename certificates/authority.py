"""A certificate authority (CA) for one cluster: pure functions from keys and names to certificates. No files.

Keys are ECDSA P-256. A node's certificate is good for servers and clients, because nodes call each other; a user's for clients
only. The common name is the node (`broker-3`, `controller-1`) or the user (`alice`), which a listener's mapping rules turn into a
principal. The subject alternative names are the hosts that clients compare with the address they dialled: IP addresses as such,
since a DNS name of digits is refused by most clients.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kraftlab.config.errors import ConfigError

AUTHORITY_NAME = "kraftlab CA"
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
CLOCK_DIFFERENCE = timedelta(hours=1)
"""Certificates are valid from this time before their creation: the clocks of other machines may be slow."""
NAME_MAX = 64
"""Bytes of the longest common name in UTF-8 (X.520)."""

_NODE = re.compile(r"(?:broker|controller)-[0-9]+")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_NODE_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_USER_USAGES = (ExtendedKeyUsageOID.CLIENT_AUTH,)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    def pem(self, password: str | None = None) -> bytes:
        """Return the key, encrypted with a password if given, and the certificate, as one PEM file."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))
        return key + self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, name: str, authority: x509.Certificate, password: str) -> bytes:
        """Return key, certificate and the authority's certificate as a PKCS12 store, for Java."""
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, [authority], _encryption(password)
        )


def create_authority(now: datetime, name: str = AUTHORITY_NAME, days: int = AUTHORITY_DAYS) -> Identity:
    """Return a new authority. It issues certificates for nodes and users, but none for other authorities. ConfigError."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _authority(key, _common_name(name), now, days)


def renew_authority(old: Identity, now: datetime, days: int) -> Identity:
    """Return the authority with the same key and name, and a later end: the certificates that it issued stay valid."""
    return _authority(old.key, old.certificate.subject, now, days)


def _authority(key: ec.EllipticCurvePrivateKey, name: x509.Name, now: datetime, days: int) -> Identity:
    builder = (
        _builder(name, name, key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
    )
    return Identity(key, builder.sign(key, hashes.SHA256()))


def issue_node(authority: Identity, node: str, hosts: Sequence[str], now: datetime, days: int = CERTIFICATE_DAYS) -> Identity:
    """Return a certificate of a node, such as `broker-3`, that is reached at these host names and IP addresses."""
    assert is_node(node)
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _issued(authority, _common_name(node), [names, x509.ExtendedKeyUsage(_NODE_USAGES)], now, days)


def issue_user(authority: Identity, user: str, now: datetime, days: int = CERTIFICATE_DAYS) -> Identity:
    """Return a certificate of a user. ConfigError for a name that a node can have, or that is not a common name."""
    if is_node(user.lower()):
        raise ConfigError(f"{user} is the name of a node; use --{user.lower().replace('-', ' ')}, or another user name")
    return _issued(authority, _common_name(user), [x509.ExtendedKeyUsage(_USER_USAGES)], now, days)


def renew(authority: Identity, old: x509.Certificate, now: datetime, days: int) -> Identity:
    """Return a certificate with the names and usages of an old one, and a new key."""
    kept = [each.value for each in old.extensions if isinstance(each.value, x509.SubjectAlternativeName | x509.ExtendedKeyUsage)]
    return _issued(authority, old.subject, kept, now, days)


def is_node(name: str) -> bool:
    """Return True for the common name of a node."""
    return _NODE.fullmatch(name) is not None


def _issued(
    authority: Identity, subject: x509.Name, extensions: Iterable[x509.ExtensionType], now: datetime, days: int
) -> Identity:
    """Return a certificate by the authority, which ends with it at the latest."""
    issuer = authority.certificate
    end = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    if end <= now:
        raise ConfigError(
            f"the authority expired at {issuer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew it: kraftlab certificates "
            "renew CA.pem"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    own_identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_identifier), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return Identity(key, builder.sign(authority.key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_DIFFERENCE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(name: str) -> x509.Name:
    if not name.isprintable() or not name.strip() or len(name.encode()) > NAME_MAX:
        raise ConfigError(f"{name!r} cannot be a common name; use printable characters, at most {NAME_MAX} bytes in UTF-8")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    """Return a host as the kind of name that clients look for. ConfigError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if _HOST.fullmatch(name) is None:
        raise ConfigError(f"{host!r} is not a host name or an IP address; give one as in kafka3.example.org")
    return x509.DNSName(name)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()
