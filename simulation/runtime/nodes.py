"""What runs in one life of a node in the shell's world: a controller or a broker as its process has it, without signals and gRPC.

Clients call the doors themselves, the functions behind which gRPC stands. A broker's metadata log is on simulated files like a
controller's; its log directories are watched ones of this machine (`log_dirs.py`), which its own code writes on the loop. A
broker that dies gives back what the kernel would take from its process: open files and locks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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
from kraftlab.quorum.driver.environment import Outside
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.rpc.server import Call

from ..consensus.simulated_file_system import SimulatedFileSystem
from .inline_disk import InlineDisk

T = TypeVar("T")
Answer = Callable[[Message | None], None]
Heard = Callable[[bytes], None]


class Said(NamedTuple):
    """What a node says of itself."""

    epoch: int
    leader: int
    high_watermark: int
    log_end: int


class ShellNode(ABC):
    """`heard` is told of whole batches, as they stand in the node's log, which it is about to apply; not of those that a leader's
    snapshot has replaced meanwhile.
    """

    driver: RaftDriver

    @abstractmethod
    async def live(self, nursery: trio.Nursery, opened: Callable[[], None]) -> None:
        """Takes part until cancelled; raises what ends the node. `opened`: from now on clients are answered."""

    @abstractmethod
    def accept(self, call: Call, answer: Answer) -> bool:
        """Takes a call that needs no task of its own; False if it is not taken."""

    @abstractmethod
    async def dispatch(self, call: Call) -> Message: ...

    @abstractmethod
    def said(self) -> Said: ...

    @abstractmethod
    def die(self) -> None:
        """Gives back what a kernel would take from a dead process."""

    def _listen(self, state_machine: Any, heard: Heard) -> None:
        apply = state_machine.apply

        async def applied(batches: list[CommittedBatch], high_watermark: int) -> None:
            for batch in batches:
                if standing := self.driver.committed(batch.base_offset, 1):
                    heard(standing)
            await apply(batches, high_watermark)

        state_machine.apply = applied


class _InlineWaits(TrioWaits):
    """Nothing is worked out on a thread."""

    async def aside(self, run: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return run()


class ShellController(ShellNode):
    """A controller."""

    def __init__(
        self, config: ControllerConfig, directory: MetaProperties, outside: Outside, files: SimulatedFileSystem, heard: Heard
    ) -> None:
        self.node = node = ControllerNode(config, directory, outside, file_system=files, aside=None, waits=_InlineWaits())
        self.driver = node.driver
        self._listen(node.controller, heard)

    async def live(self, nursery: trio.Nursery, opened: Callable[[], None]) -> None:
        controller = self.node.controller
        await self.node.take_part(nursery)
        opened()
        await controller.failed.wait()
        raise controller.failure or RuntimeError("the controller must end, and does not say why")

    def accept(self, call: Call, answer: Answer) -> bool:
        return self.node.service.accept(call, answer)

    async def dispatch(self, call: Call) -> Message:
        return await self.node.service.dispatch(call)

    def said(self) -> Said:
        told = self.driver.describe()
        return Said(told.leader_epoch, told.leader_id, told.high_watermark, told.log_end_offset)

    def die(self) -> None:
        """Its files are simulated, and know by themselves."""


class ShellBroker(ShellNode):
    """A broker, whose work on log directories `disk` does."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: MetaProperties,
        outside: Outside,
        files: SimulatedFileSystem,
        heard: Heard,
        disk: InlineDisk,
    ) -> None:
        self._disk = disk
        self._logs: LogManager | None = None
        self._service: AdminService | None = None
        self.node = node = BrokerNode(config, directory, outside, file_system=files, in_thread=self._in_thread)
        self.driver = node.driver
        self._listen(node.publisher, heard)

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
        async def open_door(nursery: trio.Nursery, service: AdminService) -> None:
            self._service = service
            opened()
            await trio.lowlevel.checkpoint()

        await self.node.take_part(nursery, open_door)
        await trio.sleep_forever()

    @property
    def is_running(self) -> bool:
        """Registered, caught up and not fenced at some time of this life."""
        return self._service is not None and self.node.lifecycle.running.is_set()

    @property
    def lacks_directories(self) -> bool:
        """One of its log directories has failed, so that it goes on without."""
        return self._logs is not None and bool(self._logs.offline_dirs)

    def accept(self, call: Call, answer: Answer) -> bool:
        return False

    async def dispatch(self, call: Call) -> Message:
        assert self._service is not None, "clients are let in when there is one"
        return await self._service.dispatch(call)

    def said(self) -> Said:
        applied = self.node.publisher.offset
        return Said(self.node.publisher.image.provenance.epoch, -1, applied, applied)

    def die(self) -> None:
        if self._logs is not None:
            self._logs.abandon()
