"""A workload: the operations of clients, how they are sent, and the properties that their results must have.

A workload runs unchanged in every world. Its generator is pure; its client awaits nothing but the port that the world gives it;
its checkers see a finished run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from kraftlab.checking.facts import Observation, Strike
from kraftlab.common.endpoint import Endpoint
from kraftlab.quorum.core.batch import MAX_RECORDS

from .committed_log import CommittedLog
from .generators import Invocation, Source
from .history import History, Outcome
from .verdicts import Verdict

OWN, KAFKA_PYTHON = "kraftlab", "kafka-python"
CLIENTS = (OWN, KAFKA_PYTHON)
"""The clients that can execute operations."""
T = TypeVar("T")


class Reply(NamedTuple):
    """A response without an error of the whole request, the node that gave it, and the metadata offset and epoch that it
    reflects.
    """

    response: Any
    node: int
    offset: int
    epoch: int


class CallFailed(Exception):
    """A call without a valid response. `outcome` is "fail" if it certainly had no effect, otherwise "info"; `error` names the
    cause.
    """

    def __init__(self, outcome: Outcome, error: str, *, node: int = -1, offset: int = -1, epoch: int = -1) -> None:
        super().__init__(error)
        self.outcome, self.error, self.node, self.offset, self.epoch = outcome, error, node, offset, epoch


class Port(Protocol):
    """The cluster as one client sees it. In the simulator nothing else may be awaited."""

    controllers: Sequence[int]
    brokers: Sequence[int]

    async def call(self, api: str, request: object, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        """Send a request of the admin API once, to the given node or to one that is likely to answer. CallFailed.

        Errors of single entries are in the response; the client handles them.
        """

    async def sleep(self, seconds: float) -> None: ...

    def now_ns(self) -> int: ...


class DataPort(Port, Protocol):
    """A port of a world with brokers that hold records."""

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> memoryview:
        """Send a request of the peer protocol once; faults between nodes do not affect it. OSError, FrameError, ApiError."""


class PollResult(NamedTuple):
    """Records of one poll, as (topic, offset, value), and the member's generation. `error`: why the poll or the commit failed.

    A commit that is not confirmed may count all the same.
    """

    generation: int
    records: Sequence[tuple[str, int, str]] = ()
    is_committed: bool = False
    error: str = ""


class KafkaCalls(Protocol):
    """Blocking calls of kafka-python's clients. CallFailed."""

    def append(self, topic: str, key: bytes, value: bytes) -> int:
        """Append a record to partition 0 and return its offset."""

    def read(self, topic: str) -> list[tuple[int, str]]:
        """Return (offset, value) of all records of partition 0."""

    def poll(self, group: str, topics: Sequence[str]) -> PollResult:
        """Poll once as a member of a group that subscribes to topics, and commit the ends of the records."""

    def leave(self) -> None:
        """Leave the group. The next poll makes a new member."""

    def committed(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Return the offset that the group committed for partition 0 of each topic, if any."""

    def ask(self, call: Callable[[Any], T]) -> T:
        """Return the result of a call of the admin client."""


class KafkaPort(DataPort, Protocol):
    """A port of a run with the client kafka-python."""

    async def in_kafka(self, call: Callable[[KafkaCalls], T]) -> T:
        """Return the result of a call in a thread. CallFailed."""


class Completion(NamedTuple):
    """The end of an invocation; the interpreter makes an `Op` of it."""

    outcome: Outcome
    result: object = None
    error: str = ""
    node: int = -1
    offset: int = -1
    epoch: int = -1
    request_id: str = ""


class Client(Protocol):
    """The client of one process. A new client is made when its process ends. CallFailed may pass through `invoke`."""

    async def invoke(self, invocation: Invocation, port: Port) -> Completion: ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run. `concurrency` is the number of workers, `rate` the operations per second over all workers (0: no
    limit), `time_s` the duration of clients and faults before everything is healed and the final phase begins. `client` carries
    out the operations. `secure`: the cluster is one of `kraftlab up --secure`, and all clients log in. `trace`: each
    node of a real cluster writes its trace.
    """

    seed: str = "0"
    time_s: float = 10.0
    rate: float = 100.0
    concurrency: int = 5
    controllers: int = 3
    brokers: int = 3
    ops_per_key: int = 120
    timeout_ms: int = 5_000
    client: str = OWN
    secure: bool = False
    trace: bool = False

    def random(self, stream: str) -> random.Random:
        """Return the random generator of one stream. Streams are independent: leaving one out changes no other."""
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
    """`setup` prepares the cluster once, `generator` yields the operations under faults, `final` those after healing (reads that
    show the outcome of everything). `log`: the checkers need the committed log.
    """

    name: str
    client: Callable[[Options, int], Client]
    """Options, process → client."""
    generator: Callable[[Options], Source]
    """The operations while faults strike; rate and duration come from the options."""
    final: Callable[[Options], Source] | None
    checkers: Callable[[Options], Sequence[Checker]]
    setup: Callable[[Options, Port], Any] | None = None
    """An async function."""
    collect: Callable[[Options, Port], Any] | None = None
    """An async function that returns `Run.data` at the end of the run."""
    log: bool = True
    not_in: Mapping[str, str] = {}
    """World → why the workload does not run there. It runs in all others."""
    properties: Mapping[str, str] = {}
    """Keys of server.properties for all nodes."""
    batch_records: Sequence[int] = (MAX_RECORDS,)
    """Largest numbers of records in a batch of the log; a seed of the simulated world has one of them."""
    controllers: int = 3
    """The default number of controllers."""
    summary: str = ""
    """One line for `--help` and the report."""
    kafka_client: Callable[[Options, int], Client] | None = None
    """As `client`, with kafka-python; None if the Kafka protocol does not have the operations."""

    def new_client(self, options: Options, process: int) -> Client:
        """Return the client of a process that the options ask for."""
        if options.client == OWN:
            return self.client(options, process)
        assert self.kafka_client is not None, f"{self.name} is not played by {options.client}"
        return self.kafka_client(options, process)
