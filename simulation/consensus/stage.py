"""Interfaces between the parts of a simulation: time, random generators and links, and the view that each part has of the others.

The network, the processes and the machines depend on these protocols and not on the world; world.py puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import Effects, ElectionState, Send
from kraftlab.quorum.core.events import Event, RequestAbandoned, RequestFailed
from kraftlab.quorum.core.messages import Request, Response
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.raft_node import RaftNode
from kraftlab.quorum.core.types import VoterSet
from kraftlab.quorum.storage import DiskFailed, LogCorrupt
from kraftlab.quorum.storage.metadata_log import FlushWork

from .durable_log import DurableLog
from .invariants import Checkers
from .observed import ObservedMachine, ObservedProcess, ObservedWorld
from .simulated_file_system import SimulatedFileSystem
from .state_machine import SimulatedStateMachine
from .transcript import Transcript

LISTENER = "CONTROLLER"


class Peer(ObservedProcess, Protocol):
    """A process, as the network uses it."""

    @property
    def inbound(self) -> Mapping[int, Inbound]: ...

    def receive(self, inbound: Inbound) -> None: ...

    def answered(self, correlation: int, source: int, response: Response, again: bool = False) -> None: ...

    def fail(self, event: RequestFailed) -> None: ...

    def abandoned(self, event: RequestAbandoned) -> None: ...


class Inbound(msgspec.Struct, frozen=True):
    """A request that a process has received and not answered yet."""

    caller: Peer
    correlation: int
    request: Request


class Links(Protocol):
    """The network, as processes and machines use it."""

    def send(self, caller: Peer, send: Send) -> None: ...

    def reply(self, server: Peer, inbound: Inbound, response: Response) -> None: ...

    def process_died(self, process: Peer) -> None: ...


class Station(ObservedMachine, Protocol):
    """A machine, as the network uses it. A move changes its `port`."""

    @property
    def process(self) -> Peer | None: ...

    @property
    def endpoints(self) -> dict[str, Endpoint]: ...

    @property
    def port(self) -> int: ...


class Stage(ObservedWorld, Protocol):
    """Time, random generators and links; checkers; and counters of the run."""

    trace: Callable[[str], object] | None
    acknowledged: int
    reads: int
    mended_logs: int
    snapshots_taken: int
    snapshots_loaded: int
    repairs: int
    has_rotten_snapshots: bool

    @property
    def is_healed(self) -> bool: ...

    @property
    def transcript(self) -> Transcript: ...

    @property
    def checkers(self) -> Checkers: ...

    @property
    def static_voters(self) -> VoterSet: ...

    @property
    def lost_disks(self) -> dict[ReplicaKey, tuple[DurableLog, ...]]: ...

    @property
    def network(self) -> Links: ...

    @property
    def machines(self) -> Sequence[Station]: ...

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None: ...

    def note(self, text: str) -> None: ...

    def moved(self, source: str, target: str) -> None: ...

    @property
    def make_core(self) -> type[RaftNode]: ...

    @property
    def make_state_machine(self) -> Callable[[int], SimulatedStateMachine]: ...

    def config_of(self, node_id: int) -> RaftConfig: ...

    def disk_latency_us(self, node_id: int) -> int: ...

    def leaders_changed(self) -> None: ...

    def process_died(self, process: Process) -> None: ...

    def refused_to_start(self, node_id: int, error: LogCorrupt) -> None: ...


class Host(ObservedMachine, Protocol):
    """A machine, as its process uses it."""

    stored: ElectionState | None
    possibly_stored: ElectionState | None

    @property
    def world(self) -> Stage: ...

    @property
    def boots(self) -> int: ...

    @property
    def disk_random(self) -> Random: ...

    @property
    def file_system(self) -> SimulatedFileSystem: ...

    def time_us_at(self, now_ms: int) -> int: ...

    def crash(self, *, power_cut: bool, reason: str, down_us: int | None = None) -> None: ...

    def crash_process(self, process: Process, reason: str) -> None: ...

    def stop(self, down_us: int) -> None: ...

    def flush_ended(self, taken: FlushWork) -> None: ...

    def flush_was_cut_short(self, taken: FlushWork) -> None: ...

    def found_sound(self) -> None: ...


class SnapshotPart(Protocol):
    """The snapshots of a process, as the feeding of its state machine uses them."""

    @property
    def is_loading(self) -> bool: ...

    def applied(self, append_time_ms: int) -> None: ...

    def load_newest(self) -> None: ...


class Process(Peer, Protocol):
    """A process, as its own parts use it."""

    @property
    def machine(self) -> Host: ...

    @property
    def world(self) -> Stage: ...

    @property
    def dead(self) -> bool: ...

    @property
    def state_machine(self) -> SimulatedStateMachine: ...

    @property
    def snapshots(self) -> SnapshotPart: ...

    def step(self, event: Event) -> Effects: ...

    def postponed(self, action: Callable[..., object], *arguments: object) -> bool: ...

    def end_of(self, error: DiskFailed | LogCorrupt) -> None: ...

    def latency_us(self) -> int: ...
