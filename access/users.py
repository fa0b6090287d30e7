"""Users of a listener, with their passwords.

`listener.name.grpc.users` in the node's own configuration lists them in plain text, and clients send them in plain text. They
tell apart people who trust the network. A caller without a name is ANONYMOUS.
"""

from __future__ import annotations

import hmac
from collections.abc import Container, Mapping

ANONYMOUS = "User:ANONYMOUS"
"""Principal of a caller that sends no name."""
PRINCIPAL_TYPE = "User"
USER_HEADER = "kraftlab-user"
PASSWORD_HEADER = "kraftlab-password"
"""Keys of gRPC metadata for user and password."""


class AuthenticationFailed(Exception):
    """The caller's name and password do not match. The text can be shown to the caller."""


class Users:
    """Passwords by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    def principal(self, name: str | None, password: str | None) -> str:
        """Return the principal of a name and password. AuthenticationFailed has the same text for a wrong password and an
        unknown name.
        """
        if name is None and password is None:
            return ANONYMOUS
        if name is None:
            raise AuthenticationFailed(f"the password has no user; send {USER_HEADER} as well")
        if password is None:
            raise AuthenticationFailed(f"user {name} has no password; send {PASSWORD_HEADER} as well")
        # An unknown name costs as much time as a wrong password.
        expected = self._passwords.get(name)
        is_right = hmac.compare_digest(password.encode(), b"" if expected is None else expected)
        if expected is None or not is_right:
            raise AuthenticationFailed(
                f"the password of user {name} is wrong, or the user is unknown here; check listener.name.grpc.users on this node"
            )
        return f"{PRINCIPAL_TYPE}:{name}"

    def login_of(self, principals: Container[str]) -> tuple[str, str] | None:
        """Return the name and password of the first user among these principals, None if none of them has a password here."""
        logins = ((name, password.decode()) for name, password in self._passwords.items())
        return next((login for login in logins if f"{PRINCIPAL_TYPE}:{login[0]}" in principals), None)


def parse_users(text: str) -> dict[str, str]:
    """Parse `alice:alice-secret,bob:bob-secret` into passwords by name. ValueError names the faulty entry and shows no
    password.
    """
    passwords: dict[str, str] = {}
    for number, item in enumerate((part.strip() for part in text.split(",")), 1):
        name, colon, password = item.partition(":")
        if not colon or not name or not password:
            raise ValueError(f"entry {number} is not NAME:PASSWORD (neither may be empty)")
        if not name.isascii() or not password.isascii() or not item.isprintable():
            raise ValueError(f"entry {number} has characters that are not printable ASCII")
        if name in passwords:
            raise ValueError(f"user {name} is listed twice")
        passwords[name] = password
    return passwords


def parse_principals(text: str) -> frozenset[str]:
    """Parse `User:admin;User:ops`. ValueError names the faulty principal."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"{principal!r} is not Type:name, for example User:admin (several are separated by ;)")
    return frozenset(principals)
