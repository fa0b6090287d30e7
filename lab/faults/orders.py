"""What is said over the control socket: one line of JSON asks, one answers.

`names` are groups of names, `["leader"]` or `["controller-3000", "broker-1"]`; how many groups an order takes is its own affair.
"""

from __future__ import annotations

import msgspec

SOCKET_NAME = "control.sock"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`for_ms`: undone after that time, whoever gave the order. The rest belongs to certain orders; see `breaker.ORDERS`."""

    order: str
    names: tuple[tuple[str, ...], ...] = ()
    for_ms: float | None = None
    one_way: bool = False
    reset: bool = False
    drop: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate: float = 1.0
    jump_ms: float = 0.0


class NodeState(msgspec.Struct, frozen=True):
    """`state` is "running", "paused", "full" (its disk is, for all it knows), "down" or "dark" (without power). `ended`: how its
    process ended if no order ended it, or "".
    """

    name: str
    pid: int | None
    state: str
    leads: bool
    ended: str = ""


class Standing(msgspec.Struct, frozen=True):
    """An order that is still in force; `left_ms` until it is undone, None if nobody said when."""

    number: int
    text: str
    left_ms: int | None


class LinkState(msgspec.Struct, frozen=True):
    """A link that is not as it was at first, or still delivers what it held. `cut`: "hold", "reset" or None."""

    source: str
    target: str
    cut: str | None
    delay_ms: float
    jitter_ms: float
    loss: float
    duplicate: float
    reorder: float
    waiting_bytes: int


class Status(msgspec.Struct, frozen=True):
    """How a cluster stands."""

    nodes: tuple[NodeState, ...]
    orders: tuple[Standing, ...]
    links: tuple[LinkState, ...]


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True):
    """An order was carried out. `text` says what was done; `number` is that of an order that stays in force."""

    text: str
    number: int | None = None
    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    undone_after_ms: float | None = None
    status: Status | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It was not; `error` says why and what would do."""

    error: str
