"""Logins of gRPC callers: the principal that a call's metadata or the connection's certificate proves.

A listener has one kind of login. Without TLS and with SASL it is a user with a password in the metadata (`UserLogin`); over TLS
alone it is the certificate (`CertificateLogin`). Checking a password may take milliseconds of a processor, so a login is awaited,
off trio's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .users import ANONYMOUS, PASSWORD_HEADER, USER_HEADER, AuthenticationFailed, Users


class Login(Protocol):
    """Proves who calls. AuthenticationFailed has a text for the caller."""

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        """Return the principal of a call with this metadata over a connection with this certificate (DER)."""
        ...


class UserLogin:
    """The user and password of the metadata; ANONYMOUS without them."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        return self._users.principal(headers.get(USER_HEADER), headers.get(PASSWORD_HEADER))


class CertificateLogin:
    """The name in the certificate, as `principal_of` (DER) maps it; ANONYMOUS without one. A ValueError refuses the call."""

    def __init__(self, principal_of: Callable[[bytes], str]) -> None:
        self._principal_of = principal_of

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        if USER_HEADER in headers:
            raise AuthenticationFailed("this listener knows callers by their certificate; leave user and password out")
        if certificate is None:
            return ANONYMOUS
        try:
            return self._principal_of(certificate)
        except ValueError as error:
            raise AuthenticationFailed(f"the certificate names nobody: {error}") from error
