"""Messages over the control socket: an order and its answer, each one line of JSON.

`names` are groups of names, `["leader"]` or `["controller-3000", "broker-1"]`; their number depends on the order.
"""

from __future__ import annotations

import msgspec

from kraftlab.client.health import Finding

SOCKET_NAME = "control.sock"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`for_ms`: the order is undone after that time. `number` names an order in force. `breaker.ORDERS` tells which of the other
    fields an order has.
    """

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
    directory: str = ""
    number: int = 0


class NodeState(msgspec.Struct, frozen=True):
    """`state` is "running", "paused", "full" (its disk seems full), "down" or "dark" (without power)."""

    name: str
    pid: int | None
    state: str
    leads: bool
    ended: str = ""


class OrderState(msgspec.Struct, frozen=True):
    """An order; `left_ms` until it is undone, None if it has no time. `groups` are the nodes that it names, `nodes` those that it
    still concerns. Times are in ms since 1970; `ended_ms` None: it is in force.
    """

    number: int
    text: str
    left_ms: int | None = None
    order: str = ""
    groups: tuple[tuple[str, ...], ...] = ()
    nodes: tuple[str, ...] = ()
    directory: str = ""
    begun_ms: int = 0
    ended_ms: int | None = None


class LinkState(msgspec.Struct, frozen=True):
    """A link with a fault, or with messages that it held. `cut`: "hold", "reset" or None."""

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
    """State of a cluster. `in_doubt`: lines about partitions that nobody leads, because all their replicas are in doubt.
    `health`: what is wrong with the cluster; None: it does not answer. `past`: orders that are over, the last ones. `progress`:
    a line about the test that gives the orders.
    """

    nodes: tuple[NodeState, ...]
    orders: tuple[OrderState, ...]
    links: tuple[LinkState, ...]
    in_doubt: tuple[str, ...] = ()
    health: tuple[Finding, ...] | None = ()
    past: tuple[OrderState, ...] = ()
    progress: str = ""


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True):
    """An order was executed. `text` describes it; `number` is that of an order that stays in force. `directories` are its log
    directories; `next_steps` are lines about what a person has to do after the fault.
    """

    text: str
    number: int | None = None
    nodes: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    undone_after_ms: float | None = None
    status: Status | None = None


class OrderRefused(msgspec.Struct, frozen=True, tag="refused"):
    """An order was refused; `error` gives the reason and the next step."""

    error: str
