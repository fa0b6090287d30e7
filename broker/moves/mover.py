"""Moves replicas between the log directories of this broker (KIP-113, KIP-858).

Theory of operation. A move copies the current log into a future log in the target directory, chunk by chunk through one throttle,
while the replica goes on as leader or follower. Each chunk begins by making the future log a prefix of the current one (by leader
epochs): if the current log was truncated meanwhile, or while the broker was down, the copy loses the same records. When the ends
meet, `move_state.py` decides the next step: first the target is reported to the controller, and only when the metadata names the
target does the future log become the current one. For that the last chunk is copied under the partition's lock, so that a busy
producer cannot keep the ends apart forever.

A copy that fails is parked with its reason, which DescribeLogDirs shows, and tried again after a growing pause; a new request for
the same directory retries it at once. At most as many moves copy at a time as there are mover threads, in the order of their
requests; a move that only waits for the controller takes no thread.

Not done here: creating and dropping future logs on request (`api/log_dirs.py`), and the files themselves (`log/log_manager.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import trio

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import LogError

from ..log.disks import Disks
from ..log.log_manager import LogManager
from ..log.partition_log import PartitionLog
from ..replication.byte_gate import ByteGate
from ..replication.fill_progress import Filling
from ..replication.partition import Partition, ReplicaId
from ..replication.replica_errors import ReplicaError
from ..replication.throttle import QUANTUM_S
from . import copying
from .move_state import MoveAction, MoveEvent, MoveState, next_step

logger = logging.getLogger("kraftlab.broker.mover")

CHUNK_BYTES = 32 * 1024 * 1024
"""Bytes that are copied at a time: between two chunks a move can be cancelled, throttled and truncated."""
LAST_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes at most that are copied under the partition's lock, while producers wait. A move that lacks no more has caught up: with a
busy producer the ends meet for moments only.
"""
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0


class Move:
    """One move. `state` changes by the table only."""

    def __init__(self, partition: Partition, source_id: Uuid, target_id: Uuid, target_dir: Path) -> None:
        self.partition = partition
        self.source_id = source_id
        self.target_id = target_id
        self.target_dir = target_dir
        self.state = MoveState.COPYING
        self.filling = Filling()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.woken = trio.Event()
        """Set when a parked or waiting move should continue."""
        self.dropped: trio.Event | None = None
        """Made by the request to drop the move; set when the move has ended and its future log is gone."""

    def wake(self) -> None:
        self.woken.set()
        self.woken = trio.Event()

    def __repr__(self) -> str:
        return f"{self.partition} to {self.target_dir} ({self.state.value})"


class Mover:
    """All moves of a broker. `assign` reports a replica's directory to the controller, some time later."""

    def __init__(
        self, disks: Disks, logs: LogManager, gate: ByteGate, assign: Callable[[Uuid, int, Uuid], None], threads: int
    ) -> None:
        self.moves: dict[ReplicaId, Move] = {}
        self._disks = disks
        self._logs = logs
        self._gate = gate
        self._assign = assign
        self._turns = trio.CapacityLimiter(threads)
        self._nursery: trio.Nursery | None = None
        self._has_ended = False

    @property
    def limit(self) -> float | None:
        """Bytes per second of all moves together; None: no limit."""
        return self._gate.rate

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._has_ended = True

    def begin(self, partition: Partition, future: PartitionLog) -> Move:
        """Copy the partition's log into `future`; from the next start on if the broker is ending."""
        assert partition.id not in self.moves, f"{partition} is being moved already"
        move = Move(partition, partition.online_log().directory_id, future.directory_id, future.log_dir)
        partition.future = future
        self.moves[partition.id] = move
        logger.info("%s: moving from %s to %s", partition, partition.log_dir, future.log_dir)
        self._start_soon(self._run_move, move)
        return move

    def directory_named(self, replica: ReplicaId, directory_id: Uuid) -> bool:
        """Note that the metadata names `directory_id` for the replica. True if a move makes sure that this becomes, or stays,
        correct.

        A move that waits for its target to be named reports the target again at any other name: its report may have been
        overtaken by an older one.
        """
        move = self.moves.get(replica)
        if move is None:
            return False
        if move.target_id == directory_id:
            self._step(move, MoveEvent.TARGET_COMMITTED)
            move.wake()
            return True
        if move.state is MoveState.QUEUED:
            self._assign(*replica, move.target_id)
            return True
        return move.state is MoveState.ACCEPTED

    def retry(self, replica: ReplicaId) -> None:
        """Retry the move now if it is parked."""
        self.moves[replica].wake()

    async def drop(self, replica: ReplicaId, *, keep_files: bool = False) -> None:
        """End the replica's move, if there is one, and drop its future log. `keep_files`: the target directory failed.

        The move is dropped even if the caller is cancelled meanwhile, since the client's time is over on a slow disk.
        """
        move = self.moves.get(replica)
        if move is None:
            return
        if move.dropped is None:
            move.dropped = trio.Event()
            move.scope.cancel()
            self._start_soon(self._drop, replica, move, move.dropped, keep_files)
        await move.dropped.wait()

    async def _drop(self, replica: ReplicaId, move: Move, dropped: trio.Event, keep_files: bool) -> None:
        try:
            await move.ended.wait()
            if move.state is not MoveState.EFFECTIVE:
                await self._forget(replica, move, keep_files=keep_files)
        finally:
            dropped.set()

    async def _forget(self, replica: ReplicaId, move: Move, *, keep_files: bool) -> None:
        logger.info("%s: the move to %s is dropped", move.partition, move.target_dir)
        self._step(move, MoveEvent.DROP)
        move.partition.future = None
        try:
            if not keep_files:
                await self._disks.run(move.target_dir, self._logs.drop_future, *replica, wall_clock_ms())
        except LogError as error:
            logger.warning("%s: its files could not be set aside: %s", move, error)
        finally:
            # Until now, a request for another move has found this one, and waited.
            del self.moves[replica]

    def _start_soon(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Start a task unless the broker ends: a move that a slow disk kept from starting goes on after the next start."""
        assert self._nursery is not None, "the mover is not running"
        if not self._has_ended:
            self._nursery.start_soon(task, *arguments)

    def _step(self, move: Move, event: MoveEvent) -> MoveAction:
        """Walk the table; assignments are queued here, a swap is left to the caller."""
        before = move.state
        move.state, action = next_step(before, event)
        if move.state is not before:
            logger.info("%s: %s -> %s", move.partition, before.value, move.state.value)
        if action is MoveAction.ASSIGN_TARGET:
            self._assign(*move.partition.id, move.target_id)
        elif action is MoveAction.ASSIGN_SOURCE:
            self._assign(*move.partition.id, move.source_id)
        return action

    # --- one move ------------------------------------------------------------------------------------------------------------

    async def _run_move(self, move: Move) -> None:
        backoff_s = BACKOFF_S
        try:
            with move.scope:
                while move.state is not MoveState.EFFECTIVE:
                    woken = move.woken
                    try:
                        with self._ending_copy(move):
                            await self._advance(move, woken)
                        backoff_s = BACKOFF_S
                    except (LogError, ReplicaError) as error:
                        logger.warning("%s: %s; the move is parked for %.0f s", move, error, backoff_s)
                        move.filling.error = str(error)
                        with trio.move_on_after(backoff_s):
                            await woken.wait()
                        backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                del self.moves[move.partition.id]
        finally:
            move.ended.set()

    def _ending_copy(self, move: Move) -> AbstractContextManager[None]:
        future = move.partition.future
        return nullcontext() if future is None else self._disks.ending(future, ReplicaError)

    async def _advance(self, move: Move, woken: trio.Event) -> None:
        """Copy until the ends meet, then take the next step; wait if there is none."""
        changed = trio.Event()
        with move.partition.watched_by(changed):
            async with self._turns:
                await self._copy_until_caught_up(move)
            action = self._step(move, MoveEvent.CAUGHT_UP)
            if action is MoveAction.SWAP:
                if not await self._swap(move):
                    await trio.lowlevel.checkpoint()
                return
            if action is MoveAction.ASSIGN_TARGET and move.partition.future is not None:
                # While the controller is asked, the disk takes what is copied.
                await self._disks.run(move.target_dir, move.partition.future.flush)
            if move.state is MoveState.ACCEPTED or woken.is_set():
                return
            async with trio.open_nursery() as nursery:
                for event in (changed, woken):
                    nursery.start_soon(_wait_and_cancel, event, nursery.cancel_scope)

    async def _copy_until_caught_up(self, move: Move) -> None:
        with self._gate.claim(move.partition.id) as claim:
            while True:
                granted = await claim.take(CHUNK_BYTES)
                copied = left = 0
                try:
                    async with move.partition.move_lock:
                        copied, left = await self._copy_chunk(move, granted)
                finally:
                    claim.settle(granted, copied)
                move.filling.record(copied, left)
                if left <= self._last_chunk_bytes():
                    return

    def _last_chunk_bytes(self) -> int:
        """Bytes that may be copied without waiting for the throttle, a moment's worth, since the next grants pay for them."""
        rate = self._gate.rate
        return LAST_CHUNK_BYTES if rate is None else min(LAST_CHUNK_BYTES, int(rate * QUANTUM_S))

    async def _copy_chunk(self, move: Move, max_bytes: int) -> tuple[int, int]:
        """Return (bytes copied, bytes left). `move_lock` is held."""
        current, future = move.partition.online_log(), move.partition.future
        assert future is not None, f"{move} has no future log"
        return await self._disks.run(move.target_dir, copying.copy_chunk, current, future, max_bytes)

    async def _copy_on_credit(self, move: Move, max_bytes: int) -> int:
        """Copy without waiting for the throttle; the next grants pay for it. Return the bytes left. `move_lock` is held."""
        copied, left = await self._copy_chunk(move, max_bytes)
        if copied:
            with self._gate.claim(move.partition.id) as claim:
                claim.settle(0, copied)
        return left

    async def _swap(self, move: Move) -> bool:
        """Copy the last chunk and swap, with the log locked; False if too much was left.

        The future log is flushed before, and what came meanwhile is copied: producers wait only for a few mebibytes.
        """
        partition = move.partition
        async with partition.move_lock:
            if partition.future is not None:
                await self._disks.run(move.target_dir, partition.future.flush)
            await self._copy_on_credit(move, CHUNK_BYTES)
            async with partition.lock:
                current, future = partition.online_log(), partition.future
                assert future is not None, f"{move} has no future log"
                left = await self._disks.run(
                    current.log_dir, current.bytes_from, min(future.log_end_offset, current.log_end_offset)
                )
                if left > LAST_CHUNK_BYTES:
                    return False
                while await self._copy_on_credit(move, LAST_CHUNK_BYTES):
                    pass
                swapped = await self._disks.run(move.target_dir, self._logs.swap, *partition.id, wall_clock_ms())
                # A fetch meanwhile may have raised the old log's high watermark, and the records below may be acknowledged.
                swapped.high_watermark = max(swapped.high_watermark, current.high_watermark)
                partition.log, partition.future = swapped, None
                self._step(move, MoveEvent.SWAPPED)
                # The metadata may name the source again by now, if an older report reached the controller late.
                self._assign(*partition.id, move.target_id)
                partition.notify()
        return True


async def _wait_and_cancel(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
