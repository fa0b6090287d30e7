"""Security of a client: TLS and SASL for every protocol that nodes speak, from the properties of Kafka's own clients.

Theory of operation. One value says how connections are protected and who the client is. The Kafka protocol uses it as Kafka's
clients do. gRPC has no SASL: TLS is the channel's, and user and password, or the token, go with each call as metadata. Listeners
for peers (PEER, CONTROLLER) have no users either: there the client is the name in its certificate.

Keys and authorities are files that people renew. They are read at the first connection, and again at a later one if a file has
changed. No `repr` and no error shows a password, a token or a key.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kraftlab.config.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from kraftlab.certificates.contexts import LoadedTls
    from kraftlab.config.tls_settings import TlsSettings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TOKEN, TOKEN_URL = "sasl.oauthbearer.token", "sasl.oauthbearer.token.endpoint.url"
TOKEN_BYTES_MAX = 1 << 16

logger = logging.getLogger("kraftlab.client")


class ClientTls:
    """Keys and authorities of a client. Thread-safe. Loading needs packages that a client without TLS never imports."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._loaded: LoadedTls | None = None

    def __repr__(self) -> str:
        return f"ClientTls({self.settings.source})"

    def loaded(self) -> LoadedTls:
        """Return the context, the same one until a file changes. ConfigError; files that became unusable leave the last one."""
        from kraftlab.certificates.contexts import client_context

        with self._lock:
            if self._loaded is None or self._loaded.has_changed_files():
                try:
                    self._loaded = client_context(self.settings)
                except ConfigError as error:
                    if self._loaded is None:
                        raise
                    logger.warning("keeping the certificates that were read before: %s", error)
            return self._loaded

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Return the context for a connection, with protocols to offer (ALPN) a context of its own. ConfigError."""
        if not protocols:
            return self.loaded().context
        from kraftlab.certificates.contexts import client_context

        context = client_context(self.settings).context
        context.set_alpn_protocols(protocols)
        return context


class ClientSecurity(msgspec.Struct, frozen=True):
    """Protocol, mechanism and user of a client, and its TLS if it uses any. Make one by `load` or `of`.

    A `user` without SASL is for gRPC listeners alone, which know users without a mechanism.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str | None = None
    password: str = ""
    token: str = ""
    token_file: str = ""
    tls: ClientTls | None = None

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}, {self.mechanism or 'no SASL'}, user={self.user}, {self.tls})"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClientSecurity:
        """Read a properties file, such as that for --command-config. ConfigError."""
        from kraftlab.config import properties

        return cls.of(properties.load(path), os.fspath(path))

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        name: str = "client properties",
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> ClientSecurity:
        """Read Kafka's client properties, `security.protocol` and others; keys about other things are ignored. A `user` takes the
        place of the properties' own. `name` is for errors: ConfigError has the key and the next step.
        """
        protocol = properties.get("security.protocol", "").upper() or "PLAINTEXT"
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{name}: security.protocol is {protocol}, expected one of {', '.join(PROTOCOLS)}")
        if user is None:
            user, password = _user_in(properties, name)
        tls = _tls_of(properties, name) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL_"):
            if user is not None and tls is not None:
                raise ConfigError(
                    f"{name} names a user, and with security.protocol=SSL the certificate names the client; write "
                    "security.protocol=SASL_SSL and sasl.mechanism, or leave the user out"
                )
            return cls(protocol, user=user, password=password or "", tls=tls)
        mechanism = properties.get("sasl.mechanism", "")
        if mechanism not in MECHANISMS:
            raise ConfigError(f"{name}: sasl.mechanism is {mechanism or 'not set'}, expected one of {', '.join(MECHANISMS)}")
        if mechanism == OAUTHBEARER:
            if user is not None:
                raise ConfigError(f"{name} names a user, and sasl.mechanism={OAUTHBEARER} has a token; leave one of them out")
            return cls(protocol, mechanism, token=properties.get(TOKEN, ""), token_file=_token_file(properties, name), tls=tls)
        if user is None:
            raise ConfigError(f"{name}: {protocol} needs a user; add sasl.jaas.config, or username and password")
        return cls(protocol, mechanism, user, password or "", tls=tls)

    @property
    def has_sasl(self) -> bool:
        return bool(self.mechanism)

    def bearer(self) -> str:
        """Return the token, which a file may have renewed. ConfigError."""
        if not self.token_file:
            return _checked_token(self.token, TOKEN)
        from kraftlab.config.regular_files import OddFile, read_regular

        try:
            text = read_regular(Path(self.token_file), TOKEN_BYTES_MAX).decode("ascii", "replace")
        except OddFile as error:
            raise ConfigError(f"cannot read {self.token_file}: it is {error}") from error
        except OSError as error:
            raise ConfigError(f"cannot read {self.token_file}: {error.strerror}; check {TOKEN_URL}") from error
        return _checked_token(text.strip(), self.token_file)


NO_SECURITY = ClientSecurity()


def _user_in(properties: Mapping[str, str], name: str) -> tuple[str | None, str | None]:
    """Return the user and password of `sasl.jaas.config`, or of our own short keys `username` and `password`. ConfigError."""
    values = dict(properties)
    if (jaas := values.get("sasl.jaas.config")) is not None:
        from kraftlab.config.jaas import parse_jaas

        try:
            values = parse_jaas(jaas).options | values
        except ConfigError as error:
            raise ConfigError(f"{name}: sasl.jaas.config: {error}") from None
    user, password = values.get("username"), values.get("password")
    if (user is None) != (password is None):
        given, missing = ("username", "password") if password is None else ("password", "username")
        raise ConfigError(f"{name} has a {given} and no {missing}; add {missing}=… to it")
    return user, password


def _tls_of(properties: Mapping[str, str], name: str) -> ClientTls:
    from kraftlab.config.tls_settings import tls_settings

    return ClientTls(tls_settings(properties, name))


def _token_file(properties: Mapping[str, str], name: str) -> str:
    """Return the path of the token's file, "" for a token in the properties. ConfigError."""
    url = properties.get(TOKEN_URL, "")
    if bool(url) == bool(properties.get(TOKEN)):
        raise ConfigError(f"{name}: sasl.mechanism={OAUTHBEARER} needs a token; set either {TOKEN}, or {TOKEN_URL}=file:///PATH")
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if url and (parts.scheme != "file" or parts.netloc or not parts.path.startswith("/")):
        raise ConfigError(f"{name}: {TOKEN_URL} names no file; write the token into one, and file:///PATH here")
    return unquote(parts.path)


def _checked_token(token: str, place: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{place} holds no token; expected one line of ASCII without blanks")
    return token
