"""A workload: what clients ask, how they ask it, and what must hold of what they saw.

It runs unchanged in every world. Its generator is pure; its client awaits nothing but the port that the world gives it; its
checkers see a finished run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from kraftlab.checking.facts import Observation, Strike
from kraftlab.quorum.core.types import Endpoint

from .committed_log import CommittedLog
from .generators import Invocation, Source
from .history import History, Outcome
from .verdicts import Verdict


class Reply(NamedTuple):
    """A node's answer without an error of the whole request: the response message, who gave it, and what it reflects."""

    response: Any
    node: int
    offset: int
    epoch: int


class CallFailed(Exception):
    """A call without an answer that counts. `outcome` is "fail" if it certainly did nothing, else "info"; `error` names it."""

    def __init__(self, outcome: Outcome, error: str, *, node: int = -1, offset: int = -1, epoch: int = -1) -> None:
        super().__init__(error)
        self.outcome, self.error, self.node, self.offset, self.epoch = outcome, error, node, offset, epoch


class Port(Protocol):
    """The cluster as one client sees it. In the simulator nothing else may be awaited."""

    controllers: Sequence[int]
    brokers: Sequence[int]

    async def call(self, api: str, request: object, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        """Sends a request message of the admin API once, to the node given or to one that is likely to answer. CallFailed.

        Errors of single entries are in the response and for the client to read.
        """

    async def sleep(self, seconds: float) -> None: ...

    def now_ns(self) -> int: ...


class DataPort(Port, Protocol):
    """A port of a world whose brokers hold records."""

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> bytes:
        """Sends a request of the peer protocol once, as no fault between nodes disturbs it. OSError, FrameError, ApiError."""


class Completion(NamedTuple):
    """How an invocation ended; the interpreter makes an `Op` of it."""

    outcome: Outcome
    result: object = None
    error: str = ""
    node: int = -1
    offset: int = -1
    epoch: int = -1
    request_id: str = ""


class Client(Protocol):
    """One worker's client. Made anew whenever its process is retired. CallFailed may pass through `invoke`."""

    async def invoke(self, invocation: Invocation, port: Port) -> Completion: ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Of a run. `concurrency` is the number of workers, `rate` operations per second over all of them (0: as fast as they go),
    `time_s` how long clients and faults go on before everything is healed and the final phase begins.
    """

    seed: str = "0"
    time_s: float = 10.0
    rate: float = 100.0
    concurrency: int = 5
    controllers: int = 3
    brokers: int = 3
    ops_per_key: int = 120
    timeout_ms: int = 5_000

    def random(self, stream: str) -> random.Random:
        """The chance of one stream: no two share a generator, so that leaving one out changes no other."""
        return random.Random(f"{self.seed}/{stream}")


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a run that its record keeps. `started_at_ms` is the wall-clock time of nanosecond 0, `healed_ns` the end of
    the faults. `node_exits`: nodes that ended by themselves, with their last words. `violations`: broken rules of the world.
    `not_ready`: what the cluster lacked when its time after the faults was over, "" if nothing. `cut_short`: the reason why the
    run ended early, "" if it did not. `data`: JSON values that the workload collected (`Workload.collect`).
    """

    options: Options
    started_at_ms: int = 0
    healed_ns: int = 0
    ended_ns: int = 0
    node_exits: dict[int, str] = {}
    violations: tuple[str, ...] = ()
    not_ready: str = ""
    cut_short: str = ""
    data: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        """Return these fields by name."""
        return {name: getattr(self, name) for name in RunFacts.__struct_fields__}


class Run(RunFacts, frozen=True, kw_only=True):
    """A finished run, as checkers see it."""

    history: History
    log: CommittedLog | None = None
    strikes: tuple[Strike, ...] = ()
    observations: tuple[Observation, ...] = ()


class Checker(Protocol):
    """Judges a run. Pure: the same run gets the same verdict."""

    name: str

    def check(self, run: Run) -> Verdict: ...


class Workload(NamedTuple):
    """`setup` prepares the cluster once, `generator` says what is asked while faults strike, `final` what is asked once all is
    healed (reads that show what became of everything). `log` says whether the checkers need the committed log.
    """

    name: str
    client: Callable[[Options, int], Client]
    """From options and process."""
    generator: Callable[[Options], Source]
    """What clients do while faults strike; its rate and its end come from the options."""
    final: Callable[[Options], Source] | None
    checkers: Callable[[Options], Sequence[Checker]]
    setup: Callable[[Options, Port], Any] | None = None
    """An async function."""
    collect: Callable[[Options, Port], Any] | None = None
    """An async function that gives `Run.data`, when all else is over."""
    log: bool = True
    not_in: Mapping[str, str] = {}
    """World → why it does not run there. It runs in all others."""
    properties: Mapping[str, str] = {}
    """Of server.properties of all nodes."""
    controllers: int = 3
    """How many there are unless somebody says otherwise."""
    summary: str = ""
    """One line for `--help` and the report."""
