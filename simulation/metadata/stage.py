"""Interfaces of the simulated cluster with controllers, as controllers and their callers use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.quorum_controller import Generate, QuorumController
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, BrokerHeartbeatResponse
from kraftlab.metadata.records import AnyRecord
from kraftlab.quorum.state_machine import CommittedBatch

from ..consensus.cluster import Cluster
from ..consensus.machine import Machine
from ..consensus.process import SimulatedProcess
from .replayed_log import ReplayedLog
from .sessions import Sessions
from .simulated_past import SimulatedPast


class TargetController(Protocol):
    """A simulated controller, as its callers and its service use it."""

    @property
    def world(self) -> MetadataStage: ...

    @property
    def node_id(self) -> int: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def process(self) -> SimulatedProcess: ...

    @property
    def controller(self) -> QuorumController: ...

    @property
    def past(self) -> SimulatedPast: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def accepts(self) -> bool: ...

    def check(self) -> None: ...

    def postponed(self, action: Callable[..., object], *arguments: object) -> bool: ...


class TargetBroker(Protocol):
    """A simulated broker, as the network of administrators uses it."""

    @property
    def is_down(self) -> bool: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def port_refuses(self) -> bool: ...


class MetadataStage(Cluster, Protocol):
    """A cluster of controllers, whose answers are judged."""

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def is_troubled(self) -> bool: ...

    @property
    def batch_records_max(self) -> int: ...

    @property
    def replayed(self) -> ReplayedLog: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def watches_brokers(self) -> bool: ...

    def broker(self, broker_id: int) -> TargetBroker | None: ...

    def active_controllers(self) -> Sequence[TargetController]: ...

    def committed(self, target: TargetController, batch: CommittedBatch) -> None: ...

    def violated(self, text: str) -> None: ...

    def write(
        self,
        target: TargetController,
        name: str,
        generate: Generate[object],
        timeout_ms: int,
        then: Callable[[Answer[object]], None] | None = None,
    ) -> None: ...

    def judged(
        self,
        target: TargetController,
        name: str,
        generate: Generate[object],
        put: Callable[[Generate[object]], Answer[object]],
        then: Callable[[Answer[object]], None] | None,
    ) -> None: ...

    def judge_heartbeat(self, answer: Answer[BrokerHeartbeatResponse]) -> None: ...

    def judge_change(self, image: MetadataImage, request: AlterPartitionRequest, records: Sequence[AnyRecord]) -> None: ...
