"""The simulated cluster, as faults, operators, clients and the heal use it: a stage with machines that can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.types import VoterSet

from .machine import Machine
from .network import SimulatedNetwork
from .observed import ObservedMachine
from .process import SimulatedProcess
from .stage import Stage


class VoterChanges(Protocol):
    """The operators of a cluster, as faults use them; see operators.py."""

    def timeout_ms(self, random: Random) -> int: ...

    def add(self, machine: Machine, timeout_ms: int) -> None: ...

    def remove(self, key: ReplicaKey, timeout_ms: int) -> None: ...

    def transfer(self, key: ReplicaKey, timeout_ms: int) -> None: ...

    def be_hasty(self) -> None: ...

    def follow_up(self, machine: Machine, former: ReplicaKey) -> None: ...


class Cluster(Stage, Protocol):
    """Machines, the processes that lead, and the effects of faults."""

    @property
    def machines(self) -> Sequence[Machine]: ...

    @property
    def leaders(self) -> tuple[SimulatedProcess, ...]: ...

    @property
    def network(self) -> SimulatedNetwork: ...

    @property
    def operators(self) -> VoterChanges: ...

    @property
    def disk_slowness(self) -> dict[int, int]: ...

    @property
    def slow_until_us(self) -> int: ...

    def machine_of(self, key: ReplicaKey) -> Machine | None: ...

    def newest_voters(self) -> VoterSet: ...

    def is_given_up(self, machine: ObservedMachine) -> bool: ...

    def unanswered(self) -> str | None: ...

    def work(self, process: SimulatedProcess) -> None: ...

    def has_converged(self, offset: int) -> bool: ...

    def converged(self) -> None: ...

    def finish(self) -> None: ...
