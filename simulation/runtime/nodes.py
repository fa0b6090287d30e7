"""Controllers and brokers for one life of a node: all of a process but signals and gRPC.

Clients call the services directly. A broker's metadata log is on simulated files like a controller's. Its log directories are
watched directories of this machine (`log_dirs.py`), which the broker's own code writes on the event loop. A broker that dies
releases its open files and locks, as a kernel would do for its process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import trio
from google.protobuf.message import Message

from kraftlab.broker.api.admin_service import AdminService
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.main import BrokerNode
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import BrokerConfig, ControllerConfig
from kraftlab.controller.api.waits import TrioWaits
from kraftlab.controller.main import ControllerNode
from kraftlab.quorum.driver.environment import Environment
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.rpc.server import Call, Later

from ..consensus.simulated_file_system import SimulatedFileSystem
from .inline_disk import InlineDisk

T = TypeVar("T")
Answer = Callable[[Message | None], None]
OnCommit = Callable[[bytes], None]
"""Called with whole batches from the log of a node that is about to apply them."""


class NodeStatus(NamedTuple):
    """A node's own view of the log."""

    epoch: int
    leader: int
    high_watermark: int
    log_end: int


def report_committed(driver: RaftDriver, state_machine: Any, on_commit: OnCommit) -> None:
    """Make `on_commit` run before each batch is applied, except for a batch that a snapshot has replaced in the log meanwhile."""
    apply = state_machine.apply

    async def applied(batches: list[CommittedBatch], high_watermark: int) -> None:
        for batch in batches:
            if data := driver.committed(batch.base_offset, 1):
                on_commit(data)
        await apply(batches, high_watermark)

    state_machine.apply = applied


class _InlineWaits(TrioWaits):
    """Computes on the event loop."""

    async def offload(self, run: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return run()


class RuntimeController:
    """A controller, for one of its lives."""

    def __init__(
        self,
        config: ControllerConfig,
        directory: MetaProperties,
        environment: Environment,
        files: SimulatedFileSystem,
        on_commit: OnCommit,
    ) -> None:
        self.node = node = ControllerNode(config, directory, environment, file_system=files, offload=None, waits=_InlineWaits())
        self.driver = node.driver
        report_committed(node.driver, node.controller, on_commit)

    async def live(self, nursery: trio.Nursery, opened: Callable[[], None]) -> None:
        """Take part until cancelled, or raise the error that ends the node. Calls `opened` when clients are answered."""
        controller = self.node.controller
        await self.node.take_part(nursery)
        opened()
        await controller.failed.wait()
        raise controller.failure or RuntimeError("the controller must end, and does not say why")

    def accept(self, call: Call, answer: Answer) -> Later | None:
        """Serve a call that needs no task of its own; otherwise return the function that a task must run."""
        return self.node.service.accept(call, answer)

    def status(self) -> NodeStatus:
        described = self.driver.describe()
        return NodeStatus(described.leader_epoch, described.leader_id, described.high_watermark, described.log_end_offset)

    def die(self) -> None:
        """Do nothing: simulated files go with the process."""


class RuntimeBroker:
    """A broker, for one of its lives. `disk` does its work on log directories."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: MetaProperties,
        environment: Environment,
        files: SimulatedFileSystem,
        on_commit: OnCommit,
        disk: InlineDisk,
    ) -> None:
        self._disk = disk
        self._logs: LogManager | None = None
        self._service: AdminService | None = None
        self.node = node = BrokerNode(config, directory, environment, file_system=files, in_thread=self._in_thread)
        self.driver = node.driver
        report_committed(node.driver, node.publisher, on_commit)

    async def _in_thread(
        self, limiter: trio.CapacityLimiter | None, work: Callable[..., T], *arguments: Any, **options: Any
    ) -> T:
        def kept() -> T:
            done = work(*arguments, **options)
            if isinstance(done, LogManager):
                self._logs = done
            return done

        return await self._disk.run_to_its_end(limiter, kept)

    async def live(self, nursery: trio.Nursery, opened: Callable[[], None]) -> None:
        async def serve(nursery: trio.Nursery, service: AdminService) -> None:
            self._service = service
            opened()
            await trio.lowlevel.checkpoint()

        await self.node.take_part(nursery, serve)
        await trio.sleep_forever()

    @property
    def is_running(self) -> bool:
        """True once the broker was registered, caught up and not fenced in this life."""
        return self._service is not None and self.node.lifecycle.running.is_set()

    @property
    def lacks_directories(self) -> bool:
        """True if one of its log directories has failed."""
        return self._logs is not None and bool(self._logs.offline_dirs)

    def accept(self, call: Call, answer: Answer) -> Later:
        assert self._service is not None, "clients are admitted when there is a service"
        return partial(self._service.dispatch, call)

    def status(self) -> NodeStatus:
        applied = self.node.publisher.offset
        return NodeStatus(self.node.publisher.image.provenance.epoch, -1, applied, applied)

    def die(self) -> None:
        if self._logs is not None:
            self._logs.abandon()


RuntimeNode = RuntimeController | RuntimeBroker
