"""Facts of a run beside the clients' history: the faults that struck, and the states of nodes over time."""

from __future__ import annotations

import msgspec


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that struck nodes or links, with its begin and end (the run's nanoseconds). `end_ns` None: it was never undone,
    such as a kill of a node that stays down. `detail` is for people. `error` is the reason why the fault was impossible, or "".
    """

    kind: str
    begin_ns: int
    end_ns: int | None
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    detail: str = ""
    error: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A node's own view at a time: the leader and the end of its log. `clock_ahead_ms`: the error of its clock, None if unknown,
    or if all nodes share one clock.
    """

    at_ns: int
    node: int
    is_up: bool
    epoch: int = -1
    leader: int = -1
    high_watermark: int = -1
    log_end: int = -1
    clock_ahead_ms: int | None = None
