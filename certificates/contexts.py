"""TLS contexts of listeners and clients, loaded as a whole and checked before they are used.

Theory of operation. A context is never changed once it is in use: CPython does not lock it, a failed change leaves it broken,
and authorities can only be added. Every reload therefore makes a new context, and the caller swaps the reference if the reload
succeeds; after ConfigError the old context stays. All forms of keys (PEM files, PEM in properties, PKCS12, encrypted) become one:
a key and a chain in memory, which OpenSSL reads from an anonymous file. That key is not encrypted, so that OpenSSL never asks the
terminal for a password.

Checks before a context is returned: the key fits the certificate; the certificate is valid now and meant for its side; it may
replace the one before (KIP-978); a handshake of the context with itself succeeds. For listeners between nodes that handshake is
a mutual one, in which each side verifies the certificate against the node's own truststore. Revocation is not checked.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraftlab.access.distinguished_name import name_text
from kraftlab.config.errors import ConfigError
from kraftlab.config.tls_settings import PEM, TYPES, TlsSettings

from .stores import (
    KeyMaterial,
    alternative_names,
    pem_certificates,
    pem_key,
    pkcs12_content,
    read,
    refuse_other_format,
)

_VERIFY_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ROUNDS_MAX = 10
"""Turns of each side in a handshake with itself; TLS 1.2 needs 3."""

FileMark = tuple[str, int, int, int]
"""Path, modification time in ns, size and inode of a file; -1 three times if the file is missing."""


@dataclass(frozen=True)
class LoadedTls:
    """A context, and what it was made of."""

    context: ssl.SSLContext = field(repr=False)
    settings: TlsSettings = field(repr=False)
    keys: KeyMaterial | None
    authorities: tuple[x509.Certificate, ...] = field(repr=False)
    files: tuple[FileMark, ...] = field(repr=False)
    """The files, as they were before they were read."""

    @property
    def expires_at(self) -> datetime | None:
        """Time at which the first certificate of the chain expires. None for a client without a certificate."""
        return min(each.not_valid_after_utc for each in self.keys.chain) if self.keys else None

    @property
    def subject(self) -> str:
        """Distinguished name as mapping rules see it; "" without a certificate."""
        return name_text(self.keys.certificate.subject) if self.keys else ""

    @property
    def sans(self) -> tuple[str, ...]:
        """Subject alternative names, such as `DNS:localhost` and `IP:127.0.0.1`."""
        return alternative_names(self.keys.certificate) if self.keys else ()

    @property
    def authorities_pem(self) -> bytes:
        """The truststore as PEM, for libraries that take it in memory."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.authorities)

    def has_changed_files(self) -> bool:
        """Return True if a file is another one than was read: load again."""
        return file_marks(self.settings) != self.files


def file_marks(settings: TlsSettings) -> tuple[FileMark, ...]:
    """Return the marks of the files of these settings. Equal marks: nothing has changed."""
    return tuple(_mark(path) for path in (settings.keystore_location, settings.truststore_location) if path)


def server_context(
    settings: TlsSettings, previous: LoadedTls | None = None, *, is_between_nodes: bool = False, now: datetime | None = None
) -> LoadedTls:
    """Return a checked context for a listener, which may replace the previous one. ConfigError.

    `is_between_nodes`: nodes call this listener with the same kind of certificate. It has to verify against the truststore, and
    be good for clients too. Other listeners may trust clients of another authority than their own.
    """
    if not settings.has_keystore:
        raise ConfigError(f"{settings.source}: a listener with TLS needs a key; set ssl.keystore.location or ssl.keystore.key")
    if settings.client_auth != "none" and not settings.has_truststore:
        raise ConfigError(
            f"{settings.source}: ssl.client.auth={settings.client_auth} needs authorities to trust; set ssl.truststore.location"
        )
    files, keys, authorities = _loaded(settings)
    assert keys is not None
    _check(settings, keys, now or datetime.now(UTC), ExtendedKeyUsageOID.SERVER_AUTH)
    if is_between_nodes:
        _check(settings, keys, now or datetime.now(UTC), ExtendedKeyUsageOID.CLIENT_AUTH)
    loaded = LoadedTls(_server(settings, keys, authorities, settings.client_auth), settings, keys, authorities, files)
    if previous is not None:
        _check_replaces(loaded, previous)
    if is_between_nodes:
        _handshake(settings, loaded.context, _client(settings, keys, authorities, verifies=settings.has_truststore))
    else:
        _handshake(settings, _server(settings, keys, (), "none"), _client(settings, None, (), verifies=False))
    return loaded


def client_context(settings: TlsSettings, *, now: datetime | None = None) -> LoadedTls:
    """Return a checked context for connections to servers. Without a truststore it trusts the machine's authorities; without a
    keystore it has no certificate. ConfigError.
    """
    files, keys, authorities = _loaded(settings)
    if keys is not None:
        _check(settings, keys, now or datetime.now(UTC), ExtendedKeyUsageOID.CLIENT_AUTH)
    context = _client(settings, keys, authorities, verifies=True)
    if not settings.has_truststore:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = settings.checks_host_name
    return LoadedTls(context, settings, keys, authorities, files)


# --- what there is -----------------------------------------------------------------------------------------------------------


def _mark(path: str) -> FileMark:
    try:
        found = os.stat(path)
    except OSError:
        return path, -1, -1, -1
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _loaded(settings: TlsSettings) -> tuple[tuple[FileMark, ...], KeyMaterial | None, tuple[x509.Certificate, ...]]:
    files = file_marks(settings)
    return files, _keys(settings), _authorities(settings)


def _keys(settings: TlsSettings) -> KeyMaterial | None:
    if not settings.has_keystore:
        return None
    name = settings.keystore_name
    if settings.keystore_key:
        key = pem_key(settings.keystore_key.encode(), settings.key_password, name)
        chain = pem_certificates(settings.certificate_chain.encode(), f"{settings.source}: ssl.keystore.certificate.chain")
        return KeyMaterial(key, chain)
    data = _file(settings, "ssl.keystore", settings.keystore_location, settings.keystore_type, name)
    if settings.keystore_type == PEM:
        return KeyMaterial(pem_key(data, settings.key_password, name), pem_certificates(data, name))
    keys, _ = pkcs12_content(data, settings.keystore_password, name)
    if keys is None:
        raise ConfigError(f"{name} has no private key; give a store with the node's key and certificate")
    return keys


def _authorities(settings: TlsSettings) -> tuple[x509.Certificate, ...]:
    if not settings.has_truststore:
        return ()
    name = settings.truststore_name
    if settings.truststore_certificates:
        return pem_certificates(settings.truststore_certificates.encode(), name)
    data = _file(settings, "ssl.truststore", settings.truststore_location, settings.truststore_type, name)
    if settings.truststore_type == PEM:
        return pem_certificates(data, name)
    _, authorities = pkcs12_content(data, settings.truststore_password, name)
    if not authorities:
        raise ConfigError(f"{name} has no certificates; import the authority's: keytool -importcert -file ca.pem")
    return authorities


def _file(settings: TlsSettings, key: str, location: str, kind: str, name: str) -> bytes:
    try:
        data = read(Path(location))
    except ConfigError as error:
        raise ConfigError(f"{settings.source}: {key}.location: {error}") from error
    refuse_other_format(data, kind, key, location, name)
    assert kind in TYPES
    return data


# --- checks ------------------------------------------------------------------------------------------------------------------


def _check(settings: TlsSettings, keys: KeyMaterial, now: datetime, usage: x509.ObjectIdentifier) -> None:
    """Raise ConfigError if the certificate cannot serve on that side of a connection now."""
    name = settings.keystore_name
    if not keys.key_fits:
        raise ConfigError(f"{name}: the private key does not belong to the first certificate; put the key and its own one there")
    for each in keys.chain:
        subject = name_text(each.subject)
        if each.not_valid_after_utc <= now:
            raise ConfigError(f"{name}: the certificate {subject} expired at {_utc(each.not_valid_after_utc)}; renew it")
        if each.not_valid_before_utc > now:
            raise ConfigError(
                f"{name}: the certificate {subject} is not valid before {_utc(each.not_valid_before_utc)}; wait, or check "
                "the clock of this machine"
            )
    side = "servers" if usage == ExtendedKeyUsageOID.SERVER_AUTH else "clients"
    try:
        usages = list(keys.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return
    except ValueError as error:
        raise ConfigError(f"{name}: the certificate has extensions that cannot be read: {error}; issue it again") from error
    if usage not in usages and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usages:
        raise ConfigError(
            f"{name}: the certificate {name_text(keys.certificate.subject)} is not for {side} (extended key usage); issue "
            "one that is: kraftlab certificates issue"
        )


def _check_replaces(new: LoadedTls, old: LoadedTls) -> None:
    """Raise ConfigError, with Kafka's text, if clients may take the certificate for another node's (KIP-978)."""
    name, settings = new.settings.keystore_name, new.settings
    if new.subject != old.subject and not settings.allows_dn_changes:
        raise ConfigError(
            f"{name}: Keystore DistinguishedName does not match: existing={{DN={old.subject}}}, new={{DN={new.subject}}}; "
            "issue one for the same name, or set ssl.allow.dn.changes=true"
        )
    if not set(new.sans) >= set(old.sans) and not settings.allows_san_changes:
        raise ConfigError(
            f"{name}: Keystore SubjectAltNames do not match: existing={{SAN=[{', '.join(old.sans)}]}}, "
            f"new={{SAN=[{', '.join(new.sans)}]}}; issue one with all of them, or set ssl.allow.san.changes=true"
        )


def _handshake(settings: TlsSettings, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let the two contexts shake hands in memory. ConfigError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for _ in range(_ROUNDS_MAX):
            sides = [side for side in sides if not _has_finished(side)]
        if sides:
            raise ssl.SSLError("the handshake does not end")
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{settings.keystore_name}: the certificate does not verify against {settings.truststore_name}: "
            f"{error.verify_message}; add its authority to the truststore, or have one there issue it"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(
            f"{settings.keystore_name}: no connection is possible with this key, ssl.enabled.protocols and ssl.cipher.suites: "
            f"{_reason(error)}; choose suites for the kind of the key"
        ) from error


def _has_finished(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


# --- contexts ----------------------------------------------------------------------------------------------------------------


def _server(
    settings: TlsSettings, keys: KeyMaterial, authorities: tuple[x509.Certificate, ...], client_auth: str
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _fill(context, settings, keys, authorities)
    context.verify_mode = _VERIFY_MODES[client_auth]
    # Tickets are half of the cost of a mutual handshake, and a resumed session would outlive the certificate that began it.
    context.num_tickets = 0  # TLS 1.3
    context.options |= ssl.OP_NO_TICKET  # TLS 1.2
    return context


def _client(
    settings: TlsSettings, keys: KeyMaterial | None, authorities: tuple[x509.Certificate, ...], *, verifies: bool
) -> ssl.SSLContext:
    """Return a context that compares no host names yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.hostname_checks_common_name = False
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    _fill(context, settings, keys, authorities)
    return context


def _fill(
    context: ssl.SSLContext, settings: TlsSettings, keys: KeyMaterial | None, authorities: tuple[x509.Certificate, ...]
) -> None:
    versions = [_VERSIONS[protocol] for protocol in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    # As in Java, every certificate of a truststore is trusted, not only those of roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if authorities:
            context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in authorities))
    except ssl.SSLError as error:
        raise ConfigError(f"{settings.truststore_name} cannot be used: {_reason(error)}; write it again") from error
    try:
        if keys is not None:
            with _as_file(keys.key_pem + keys.chain_pem) as path:
                context.load_cert_chain(path, password="")
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{settings.keystore_name} cannot be used: {_reason(error)}; use an ECDSA P-256 key, or RSA of at least 2048 bits"
        ) from error


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give bytes a path, for as long as the context lasts. On Linux they are only in memory."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(prefix="kraftlab-") as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("kraftlab", os.MFD_CLOEXEC), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
