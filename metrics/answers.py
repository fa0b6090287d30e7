"""Callers of the METRICS listener, and the answers of its pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

CONNECTIONS_MAX = 64
"""Simultaneous connections of the listener."""


class Caller(NamedTuple):
    """A client of the listener. `certificate` is DER; `authorization` the header, "" without one."""

    host: str
    authorization: str = ""
    certificate: bytes | None = None


class Answer(NamedTuple):
    """An answer of a page. `challenge`: the kind of login that a refused client should try."""

    body: str
    status: int = 200
    kind: str = "text/plain; charset=utf-8"
    challenge: str = ""


Page = Callable[[Caller], Answer]
