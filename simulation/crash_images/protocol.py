"""Scripts of events while a replica is recorded: produced records, moves, a cancelled move, a move back, full and failing disks.
Each script is one recorded run.

Images are made from the first move on; the part before it is an ordinary run. Marks in the trace hold the guarantees from
there on: `acked` (batches that were acknowledged, which a kill of the process must keep), `durable` (batches on the disk of the
current copy, which a loss of power must keep too), `high watermark` (the one in the checkpoint), and the directory in which the
metadata places the replica. A follower may have to drop records that only a lost leader had: then another `branch` of the log
counts, from some batch on.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import trio

from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.moves.move_state import MoveState
from kraftlab.checking.disk_model import Operation
from kraftlab.checking.scratch_directory import own_directory
from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import LogError

from .one_broker import NotSettled, OneBroker, run
from .recorder import Recorder
from .world import Broker, directory_id, format_disks

FIRST_LEADER_EPOCH = 3
_SLOW = 400
"""Bytes per second: a move takes several chunks, and clients append in between."""
_VERY_SLOW = 20
"""Bytes per second: a move that has copied something makes no progress for a while."""
_PAUSE_S = 0.25


class RecordedRun(NamedTuple):
    """A run. `batches` were acknowledged, in order; each has one record, so that offsets count them. `faults` were seen in the
    run itself, without any crash. `given_up`: earlier branches of the log, oldest first, which begin alike.
    """

    name: str
    disks: tuple[str, ...]
    trace: tuple[Operation, ...]
    batches: tuple[bytes, ...]
    faults: tuple[str, ...]
    given_up: tuple[tuple[bytes, ...], ...] = ()

    @property
    def branches(self) -> tuple[tuple[bytes, ...], ...]:
        """All branches, by the numbers that the trace has for them."""
        return *self.given_up, self.batches


class Script:
    """Steps of a script; they keep account of the batches and of the faults."""

    def __init__(self, recorder: Recorder, broker: OneBroker, elsewhere: Path) -> None:
        self.broker = broker
        self.batches: list[bytes] = []
        self.given_up: list[tuple[bytes, ...]] = []
        self.faults: list[str] = []
        self._elsewhere = elsewhere
        self._leader: Broker | None = None
        self._recorder = recorder
        self._swap = broker.logs.swap
        setattr(broker.logs, "swap", self._watched_swap)  # noqa: B010 - one object's method is replaced, not the class's

    @property
    def first(self) -> Path:
        return next(iter(self._recorder.disks.values()))

    @property
    def second(self) -> Path:
        return [*self._recorder.disks.values()][1]

    async def produce(self, count: int = 1) -> None:
        for _ in range(count):
            end, stored = await self.broker.produce(f"value {len(self.batches)}")
            self.batches.append(stored)
            if end != len(self.batches):
                self.faults.append(f"record {len(self.batches) - 1} was given an offset after which the log ends at {end}")
            self._recorder.mark("acked", len(self.batches))

    async def follow(self, leader_id: int, cut: int) -> None:
        """Let another broker lead, which has at most `cut` of the batches."""
        if cut < len(self.batches):
            self.given_up.append(tuple(self.batches))
            del self.batches[cut:]
        self._recorder.mark("branch", (len(self.given_up), cut))
        directory = self._elsewhere / f"broker-{leader_id}"
        self._leader = await self.broker.follow(leader_id, directory, self.batches)

    async def fetch(self, count: int = 1) -> None:
        """Append records on the leader, and wait until the replica has them too."""
        assert self._leader is not None, "nobody else leads"
        for _ in range(count):
            value = f"value {len(self.batches)} of broker {self._leader.broker_id}"
            _, stored = await self.broker.produce(value, self._leader)
            self.batches.append(stored)
        wanted = b"".join(self.batches)
        online_log = self.broker.partition.online_log
        await self.broker.until(
            lambda: online_log().log_end_offset == len(self.batches) and online_log().read(0, 1 << 20) == wanted,
            f"the replica holds the {len(self.batches)} batches of its leader",
        )

    async def until_move_is(self, state: MoveState) -> None:
        """Wait until each move is in the state, or has ended."""
        moves = self.broker.mover.moves
        await self.broker.until(lambda: all(move.state is state for move in moves.values()), f"the move is {state.value}")

    async def until_copied(self) -> None:
        """Wait until the copy ends where the log does, or has become the log."""
        partition = self.broker.partition

        def is_copied() -> bool:
            return partition.future is None or partition.future.log_end_offset == partition.online_log().log_end_offset

        await self.broker.until(is_copied, "all is copied")

    def checkpoint(self) -> None:
        """Make everything so far durable, and write the offset checkpoints."""
        log = self.broker.partition.online_log()
        log.flush()
        self._recorder.mark("durable", log.log_end_offset)
        self.broker.logs.write_checkpoints()
        self._recorder.mark("high watermark", log.high_watermark)

    async def move(self, disk: Path) -> None:
        """Ask for a move."""
        self._recorder.mark("begun")
        code, _ = await self.broker.alter(disk)
        if code:
            self.faults.append(f"the move to {disk.name} was refused with error {code}")

    async def begin_slow_move(self) -> None:
        """Produce some records, and begin to move them to the second disk."""
        await self.produce(4)
        self.checkpoint()
        await self.broker.limit_moves(_SLOW)
        await self.move(self.second)
        await trio.sleep(_PAUSE_S)

    def fail_writes(self, disk: Path, number: int | None) -> None:
        self._recorder.fail_with(disk, number)

    def finish(self, disk: Path) -> None:
        """Check that the replica is in the directory, with every batch."""
        log = self.broker.partition.online_log()
        if log.log_dir != disk:
            self.faults.append(f"the replica is in {log.log_dir.name} instead of {disk.name}")
        if log.read(0, 1 << 20) != b"".join(self.batches):
            self.faults.append(f"{log!r} does not hold the {len(self.batches)} acknowledged batches")

    def _watched_swap(self, topic_id: Uuid, partition: int, now_ms: int) -> PartitionLog:
        """Compare the epochs and the high watermark before and after a swap."""
        before = self.broker.partition.online_log()
        epochs, high_watermark = before.epochs, before.high_watermark
        after = self._swap(topic_id, partition, now_ms)
        if after.epochs != epochs:
            self.faults.append(f"the leader epochs were {epochs} before the swap and are {after.epochs} after it")
        if after.high_watermark < high_watermark:
            self.faults.append(f"the high watermark was {high_watermark} before the swap and is {after.high_watermark} after it")
        self._recorder.mark("durable", before.log_end_offset)
        self._recorder.mark("high watermark", high_watermark)
        return after


async def _busy(script: Script) -> None:
    """Records are appended before, during and after the move; leader epochs begin; the old copy's files are removed."""
    broker = script.broker
    await script.produce(2)
    await broker.new_leader_epoch()
    await script.produce(2)
    script.checkpoint()
    await broker.limit_moves(_SLOW)
    await script.move(script.second)
    await script.produce(1)
    await trio.sleep(_PAUSE_S)
    await broker.new_leader_epoch()
    await script.produce(1)
    await broker.limit_moves(1 << 30)
    await script.until_move_is(MoveState.QUEUED)
    await script.produce(1)
    await script.until_move_is(MoveState.ACCEPTED)
    await script.produce(3)
    await broker.settle()
    await script.produce(1)
    script.checkpoint()
    broker.logs.remove_expired(1 << 60)
    await script.produce(1)
    script.finish(script.second)


async def _idle(script: Script) -> None:
    """Nothing is appended; the replica moves there and back again."""
    broker = script.broker
    await script.produce(2)
    await broker.new_leader_epoch()
    await script.produce(2)
    await broker.new_leader_epoch()
    script.checkpoint()
    for disk in (script.second, script.first):
        await script.move(disk)
        await broker.settle()
        await script.move(disk)
        broker.logs.remove_expired(1 << 60)
        script.finish(disk)


async def _changed_mind(script: Script) -> None:
    """A move is cancelled half-way, requested again, and cancelled when the controller has been asked."""
    broker = script.broker
    await script.begin_slow_move()
    await script.produce(1)
    await script.move(script.first)
    broker.logs.remove_expired(1 << 60)
    await broker.limit_moves(1 << 30)
    await script.move(script.second)
    await broker.until(lambda: bool(broker.assignments.pending), "the controller is asked")
    await script.produce(1)
    await script.move(script.first)
    await broker.settle()
    broker.logs.remove_expired(1 << 60)
    script.finish(script.first)


async def _full_target(script: Script) -> None:
    """The target is full for a while; then the move goes on."""
    broker = script.broker
    await script.begin_slow_move()
    script.fail_writes(script.second, errno.ENOSPC)
    await script.produce(2)
    await trio.sleep(5)
    script.fail_writes(script.second, None)
    await script.move(script.second)
    await broker.limit_moves(1 << 30)
    await broker.settle()
    await script.produce(1)
    broker.logs.remove_expired(1 << 60)
    script.finish(script.second)


async def _dead_target(script: Script) -> None:
    """The target dies during the copy; the replica stays in service."""
    broker = script.broker
    await script.begin_slow_move()
    script.fail_writes(script.second, errno.EIO)
    await trio.sleep(_PAUSE_S)
    await script.produce(1)
    await trio.sleep(2)
    await broker.disk_failed()
    await script.produce(1)
    await broker.settle()
    script.finish(script.first)


async def _dead_source(script: Script) -> None:
    """The source dies when the controller has been asked: the replica is offline, and its copy does not take its place."""
    broker = script.broker
    await script.produce(4)
    script.checkpoint()
    await script.move(script.second)
    await broker.until(lambda: bool(broker.assignments.pending), "the controller is asked")
    await script.produce(1)
    script.fail_writes(script.first, errno.EIO)
    try:
        await broker.produce("never acknowledged")
    except Exception as error:
        if "failed" not in str(error):
            raise
    await broker.disk_failed()
    await broker.settle()
    if broker.log is not None:
        script.faults.append(f"{broker.log!r} in {broker.log.log_dir.name} is served after the source died")


async def _follower(script: Script) -> None:
    """Leaders change during a move there and a move back: the replica truncates its log, and fetches other records in the place
    of some that are copied already; the first time while the move waits for the swap, the second time while it copies.
    """
    broker = script.broker
    await script.follow(1, 0)
    await script.fetch(3)
    script.checkpoint()
    await broker.limit_moves(_VERY_SLOW)
    await script.move(script.second)
    await script.until_move_is(MoveState.ACCEPTED)
    await script.until_copied()
    await script.follow(2, 1)
    await script.fetch(2)
    script.checkpoint()
    await broker.limit_moves(1 << 30)
    await broker.settle()
    broker.logs.remove_expired(1 << 60)
    await script.fetch(2)
    script.checkpoint()
    await broker.limit_moves(_SLOW)
    await script.move(script.first)
    await trio.sleep(_PAUSE_S)
    await script.follow(3, 2)
    await script.fetch(1)
    await broker.limit_moves(1 << 30)
    await broker.settle()
    await script.fetch(1)
    script.checkpoint()
    broker.logs.remove_expired(1 << 60)
    script.finish(script.first)


SCRIPTS: dict[str, Callable[[Script], Awaitable[None]]] = {
    "busy": _busy,
    "idle": _idle,
    "changed-mind": _changed_mind,
    "full-target": _full_target,
    "dead-target": _dead_target,
    "dead-source": _dead_source,
    "follower": _follower,
}


def record(name: str) -> RecordedRun:
    """Play a script and record every file operation."""
    with own_directory() as root:
        disks = [Path(root, "d0"), Path(root, "d1")]
        format_disks(disks)
        recorder = Recorder(disks)
        recorder.mark("committed", directory_id(disks[0]))
        scripts: list[Script] = []

        async def play(broker: OneBroker) -> None:
            script = Script(recorder, broker, Path(root, "elsewhere"))
            scripts.append(script)
            try:
                await SCRIPTS[name](script)
            except (NotSettled, LogError) as error:
                script.faults.append(str(error))

        with recorder.watching():
            run(disks, directory_id(disks[0]), FIRST_LEADER_EPOCH, recorder.mark, play)
        [script] = scripts
        names = tuple(disk.name for disk in disks)
        return RecordedRun(
            name, names, tuple(recorder.trace), tuple(script.batches), tuple(script.faults), tuple(script.given_up)
        )
