"""The interface of worlds: the assignment, the played run, and the listener to its progress."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from kraftlab.checking.facts import Observation

from ..fault_plan import FaultPlan
from ..faults.kinds import KINDS
from ..faults.networks.back_ends import LINKS
from ..history import Op
from ..store import RunDirectory
from ..workload import KAFKA_PYTHON, OWN, Options, Run, Workload


class RunStatus(NamedTuple):
    """The state of a run in progress. `leader` is the node that reports to lead in the highest known epoch, -1 if there is none.
    `lag` is the number of records by which the slowest answering node is behind. `faults` are the kinds in force.
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
    """Gets the progress of a run; must be quick."""

    def ended(self, op: Op) -> None: ...

    def report(self, status: RunStatus) -> None:
        """Called about once a second and at the begin of each phase."""


class Quiet:
    """A listener that ignores everything."""

    def ended(self, op: Op) -> None: ...

    def report(self, status: RunStatus) -> None: ...


class Assignment(NamedTuple):
    """A run to play. Without a `plan` the world draws one for the `nemeses`. The world writes further files, such as node logs,
    into `directory`. `leave_running`: the cluster outlives the run (`PlayedRun.close`). `net` is the back end that breaks links
    of real clusters (`faults/networks/back_ends.py`). `watched_by` is entered with the directory of a real cluster when that
    is up: a socket there tells of the run.
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
    watched_by: Callable[[Path], AbstractContextManager[object]] | None = None


class PlayedRun(NamedTuple):
    """A played run. `links`: the back end that cut them, "" if there is none. `properties`: keys of server.properties of all
    nodes.

    `close` stops a cluster that was left running, `endpoints` is its address, and `data` the directory where it takes orders
    (`kraftlab cluster`).
    """

    run: Run
    plan: FaultPlan
    links: str = ""
    properties: Mapping[str, str] = {}
    close: Callable[[], None] | None = None
    endpoints: str = ""
    data: str = ""


class WorldFailed(Exception):
    """A world cannot play the assignment; the text says why and what to do."""


class NotOnThisMachine(WorldFailed):
    """This machine lacks something that the assignment needs."""


WORLDS = ("real", "shell", "simulated")
"""Each is a module of this room with a function `play`."""


def kinds_of(world: str) -> Sequence[str]:
    """Return the kinds of faults that a world has. Simulated brokers hold no replicas that could move."""
    return tuple(name for name in KINDS if (name, world) != ("move-dirs", "simulated"))


def left_out(net: str, *, client: str = OWN, secure: bool = False) -> Mapping[str, str]:
    """Return the kinds of faults that do not strike with that back end, client and security, and the reasons."""
    if net != LINKS:
        return {}
    return (_REPEATED if client != OWN else {}) | (_HIDDEN if secure else {})


_REPEATED = {
    "duplicate": f"not for --client {KAFKA_PYTHON}: proxies would repeat requests, which TCP never does, and those of Kafka "
    "clients have no id to be recognized by"
}
_HIDDEN = dict.fromkeys(
    ("loss", "duplicate", "reorder"),
    "not for --secure: TLS hides single messages from the proxies between nodes; --net netns loses and doubles packets instead",
)


def world_named(name: str) -> Callable[[Assignment], PlayedRun]:
    """Return the function that plays a run in that world."""
    play: Callable[[Assignment], PlayedRun] = importlib.import_module(f".{name}", __package__).play
    return play


def newest(observations: Mapping[int, Observation]) -> tuple[int, int, int, int]:
    """Return (leader, epoch, high watermark, lag) from the last observation of each node."""
    up = [observation for observation in observations.values() if observation.is_up]
    epoch = max((observation.epoch for observation in up), default=-1)
    leaders = [observation.node for observation in up if observation.leader == observation.node and observation.epoch == epoch]
    committed = max((observation.high_watermark for observation in up), default=-1)
    behind = min((observation.log_end for observation in up), default=committed)
    return (leaders[0] if leaders else -1, epoch, committed, max(0, committed - behind))
