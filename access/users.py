"""The users that a listener knows by name and password.

They stand in the node's own configuration (`listener.name.grpc.users`), in plain text, and are sent in plain text: they keep
apart people who trust the network. Who says nothing is ANONYMOUS.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from .authorizer import ANONYMOUS

PRINCIPAL_TYPE = "User"
USER_HEADER = "kraftlab-user"
PASSWORD_HEADER = "kraftlab-password"
"""The names under which gRPC metadata carry user and password."""


class AuthenticationFailed(Exception):
    """The caller is not who it says, for a reason that may be told to anybody."""


class Users:
    """Passwords by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    def principal(self, name: str | None, password: str | None) -> str:
        """Whom these prove. AuthenticationFailed, which does not tell a wrong password from an unknown name."""
        if name is None and password is None:
            return ANONYMOUS
        if name is None:
            raise AuthenticationFailed(f"a password without a user came; send {USER_HEADER} as well")
        if password is None:
            raise AuthenticationFailed(f"user {name} came without a password; send {PASSWORD_HEADER} as well")
        # An unknown name costs as much time as a wrong password.
        expected = self._passwords.get(name)
        is_right = hmac.compare_digest(password.encode(), b"" if expected is None else expected)
        if expected is None or not is_right:
            raise AuthenticationFailed(
                f"the password of user {name} is wrong, or this node knows no such user; look at listener.name.grpc.users there"
            )
        return f"{PRINCIPAL_TYPE}:{name}"


def parse_users(text: str) -> dict[str, str]:
    """Passwords by name of `alice:alice-secret,bob:bob-secret`. ValueError names what is wrong, without the passwords."""
    passwords: dict[str, str] = {}
    for number, item in enumerate((part.strip() for part in text.split(",")), 1):
        name, colon, password = item.partition(":")
        if not colon or not name or not password:
            raise ValueError(f"entry {number} is not NAME:PASSWORD (neither may be empty)")
        if not name.isascii() or not password.isascii() or not item.isprintable():
            raise ValueError(f"entry {number} has characters that are not printable ASCII")
        if name in passwords:
            raise ValueError(f"user {name} stands there twice")
        passwords[name] = password
    return passwords


def parse_principals(text: str) -> frozenset[str]:
    """Of `User:admin;User:ops`. ValueError names what is wrong."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"{principal!r} is not Type:name, for example User:admin (several are separated by ;)")
    return frozenset(principals)
