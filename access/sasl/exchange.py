"""The contract of a SASL mechanism on the server's side (RFC 4422): a token of the client in, one result out.

Theory of operation. A login has one `Exchange`. `step` takes the client's next token and returns one of four results. A
`Challenge` is sent, and the client answers it by another token. A `Success` ends the login; its token is sent too. A `Failure`
ends the login, and the connection with it. `Unavailable` means that this node cannot judge now: the connection is closed without
an answer, so that the client tries again. `step` raises nothing, whatever bytes the token has. It needs no thread: the slowest
step checks one signature.

Results print without their tokens. Only names that are proven, and texts made for clients, may be logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login goes on: send the token."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Success:
    """The client is the user `name`. `lifetime_ms`: time until the credential itself ends, None if it does not."""

    name: str
    token: bytes = field(default=b"", repr=False)
    lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The login failed. `text` is for the client; None: the text of all failures of the mechanism. `reason` is for the log."""

    text: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """This node cannot judge the login now. `reason` is for the log."""

    reason: str


class NotLoaded(Exception):
    """The credentials of users are not known yet."""


Result = Challenge | Success | Failure | Unavailable


class Exchange(Protocol):
    """One login by one mechanism."""

    def step(self, token: bytes, /) -> Result: ...


Mechanism = Callable[[], Exchange]
"""Begins a login."""
