"""What a world is given, what it gives back, and whom it tells how things stand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kraftlab.checking.facts import Observation

from ..fault_plan import FaultPlan
from ..faults.kinds import KINDS
from ..faults.networks.back_ends import LINKS
from ..history import Op
from ..store import RunDirectory
from ..workload import Options, Run, Workload


class Standing(NamedTuple):
    """How a run stands. `leader` is who says that it leads, in the highest epoch that anybody knows, -1 if nobody does; `lag` by
    how many records the node that answers and has least is behind. `faults` are the kinds that strike now.
    """

    phase: str
    now_ns: int
    leader: int = -1
    epoch: int = -1
    high_watermark: int = -1
    lag: int = 0
    down: tuple[int, ...] = ()
    faults: tuple[str, ...] = ()


class Listener(Protocol):
    """Hears while a run goes on; must be quick."""

    def ended(self, op: Op) -> None: ...

    def stands(self, standing: Standing) -> None:
        """About once a second, and whenever a phase begins."""


class Quiet:
    """A listener that ignores everything."""

    def ended(self, op: Op) -> None: ...

    def stands(self, standing: Standing) -> None: ...


class Assignment(NamedTuple):
    """What is to be run. Without a `plan` the world draws one for the `nemeses`. What else than the run is worth keeping, logs of
    nodes say, goes into the `directory`. `leave_running`: the cluster is to outlive the run (`Played.close`). `net` is what links
    of real clusters are broken by (`nemeses/networks/back_ends.py`).
    """

    workload: Workload
    options: Options
    nemeses: tuple[str, ...]
    plan: FaultPlan | None
    directory: RunDirectory
    listener: Listener
    properties: Mapping[str, str] = {}
    leave_running: bool = False
    net: str = LINKS


class Played(NamedTuple):
    """What came of it. `links`: which back end cut them, "" if none did. `properties`: of server.properties, that all nodes had.

    `close` stops what was left running, `endpoints` is where that answers, and `data` where it takes orders (`kraftlab cluster`).
    """

    run: Run
    plan: FaultPlan
    links: str = ""
    properties: Mapping[str, str] = {}
    close: Callable[[], None] | None = None
    endpoints: str = ""
    data: str = ""


class WorldFailed(Exception):
    """A world cannot do what it was given to do; the text says why and what to do."""


WORLDS = ("real", "shell", "simulated")
"""Each is a module of this room with a function `play`."""


def kinds_of(world: str) -> Sequence[str]:
    """Return the kinds of faults that a world has. Simulated brokers hold no replicas that could move."""
    return tuple(name for name in KINDS if (name, world) != ("move-dirs", "simulated"))


def world_named(name: str) -> Callable[[Assignment], Played]:
    """Return the function that plays a run in that world."""
    play: Callable[[Assignment], Played] = importlib.import_module(f".{name}", __package__).play
    return play


def newest(observations: Mapping[int, Observation]) -> tuple[int, int, int, int]:
    """(leader, epoch, high watermark, lag) from the last observation of each node."""
    up = [observation for observation in observations.values() if observation.is_up]
    epoch = max((observation.epoch for observation in up), default=-1)
    leaders = [observation.node for observation in up if observation.leader == observation.node and observation.epoch == epoch]
    committed = max((observation.high_watermark for observation in up), default=-1)
    behind = min((observation.log_end for observation in up), default=committed)
    return (leaders[0] if leaders else -1, epoch, committed, max(0, committed - behind))
