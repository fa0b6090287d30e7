"""PLAIN (RFC 4616): the client sends its name and password. Texts of failures are those of Apache Kafka."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from .exchange import Failure, Result, Success

TOKENS = 3
"""Parts of a message: authorization id, name, password."""
INVALID = "Authentication failed: Invalid username or password"
OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class Plain:
    """A login against passwords by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, token: bytes) -> Result:
        parts = token.split(b"\0", TOKENS)
        if len(parts) != TOKENS:
            return Failure(f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(parts)}")
        authorization_id, name, password = (part.decode(errors="surrogateescape") for part in parts)
        if not name:
            return Failure("Authentication failed: username not specified")
        if not password:
            return Failure("Authentication failed: password not specified")
        # An unknown name costs as much time as a wrong password: no known password is empty, so the two never match.
        expected = self._passwords.get(name, "")
        if not hmac.compare_digest(_encoded(password), _encoded(expected)):
            return Failure(INVALID)
        if authorization_id not in ("", name):
            return Failure(OTHER_AUTHORIZATION_ID)
        return Success(name)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
