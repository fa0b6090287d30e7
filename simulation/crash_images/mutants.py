"""Bugs planted in the mover and in its recovery, to see that the crash images find them.

A name means one bug or several together ("M5+M7"). Some bugs show only together with another one: a recovery that looks
further than the metadata masks a mistake of the protocol, and a correct protocol masks a mistake of the recovery. The row of such
a bug says what masks it.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kraftlab.broker.log import log_manager, partition_log, startup
from kraftlab.broker.log.dir_names import DirKind
from kraftlab.broker.log.errors import LogClosed, NoSpace
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.log_segments import LogSegments
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.segment import INDEX_INTERVAL_BYTES, Segment
from kraftlab.broker.log.startup import Action, AssignedReplica, FoundDir, Row, Verb
from kraftlab.broker.moves import copying
from kraftlab.broker.moves.move_state import MoveEvent
from kraftlab.broker.moves.mover import Move, Mover
from kraftlab.broker.replication.partition import Partition
from kraftlab.checking.mutant import Mutant, Shown, Table
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.uuids import Uuid
from kraftlab.records.record_batch import BatchHeader

from .protocol import record
from .recovery import cases, judge, quiet, sample

IN_THE_RUN = "the run itself"


class Images(NamedTuple):
    """Scripts to search for the bug, in order. `masked_by`: why the bug alone is harmless, "" if it is harmful."""

    scripts: tuple[str, ...] = ("idle", "dead-source", "changed-mind", "busy")
    masked_by: str = ""


BUGS: Table[Images] = Table()


@BUGS.row(Mover, "_swap", Images(("busy",), masked_by="the log manager compares the ends"))
async def M1_swap(_: object, self: Mover, move: Move) -> bool:
    """The swap comes without the last chunk."""
    partition = move.partition
    async with partition.move_lock, partition.lock:
        current = partition.online_log()
        swapped = await self._disks.run(move.target_dir, self._logs.swap, *partition.id, wall_clock_ms())
        swapped.high_watermark = max(swapped.high_watermark, current.high_watermark)
        partition.log, partition.future = swapped, None
        self._step(move, MoveEvent.SWAPPED)
        self._assign(*partition.id, move.target_id)
        partition.notify()
    return True


@BUGS.row(LogManager, "swap", Images(("busy",), masked_by="the mover copies the last chunk while nothing is appended"))
def M1_ends(_: object, self: LogManager, topic_id: Uuid, partition: int, now_ms: int) -> PartitionLog:
    """The log manager does not compare the ends."""
    with self._lock:
        current, future = self._maps.currents[topic_id, partition], self._maps.futures[topic_id, partition]
        self._inherit(current, future)
        with current.exclusive(), future.exclusive():
            self._promote(current, future, now_ms)
            self._maps.currents[topic_id, partition] = future
            del self._maps.futures[topic_id, partition]
        return future


@BUGS.row(PartitionLog, "flush", Images())
def M2(flush: Callable[..., None], self: PartitionLog) -> None:
    """Future files not fsynced before the swap."""
    if not self.directory.name.endswith(DirKind.FUTURE.value):
        flush(self)


@BUGS.row(partition_log, "make_rename_durable", Images())
def M3(_: object, source: Path, target: Path) -> None:
    """No directory fsync after rename."""


@BUGS.row(LogManager, "_promote", Images())
def M4(promote: Callable[..., None], self: LogManager, old: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
    """Source deleted before the rename is durable."""
    if old is not None:
        old.close(LogClosed(f"{old.name} has moved"))
        shutil.rmtree(old.directory)
    promote(self, None, future, now_ms)


@BUGS.row(
    Mover,
    "begin",
    Images(masked_by="no recovery trusts the metadata alone, and no copy is served while its source may be there"),
)
def M5(begin: Callable[..., Move], self: Mover, partition: Partition, future: PartitionLog) -> Move:
    """Target reported before the data are in the new directory."""
    move = begin(self, partition, future)
    self._assign(*partition.id, move.target_id)
    return move


@BUGS.row(startup, "ROWS", Images())
def M6(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Recovery promotes an incomplete copy."""
    return tuple(row._replace(home=None, level=None) if row.verb is Verb.PROMOTE and row.has_current else row for row in rows)


@BUGS.row(startup, "plan_replica", Images(), also=(log_manager,))
def M7(
    plan: Callable[..., list[Action]],
    found: Sequence[FoundDir],
    replica: AssignedReplica,
    *,
    good_dirs: Sequence[Uuid],
    has_bad_dirs: bool,
) -> list[Action]:
    """Recovery creates an empty log where the assigned directory has none."""
    is_there = any(item.log_dir == replica.directory and item.kind is DirKind.CURRENT for item in found)
    if is_there or replica.directory not in good_dirs:
        return plan(found, replica, good_dirs=good_dirs, has_bad_dirs=has_bad_dirs)
    kept = [Action(Verb.KEEP, item.topic, item.partition, item) for item in found]
    return [Action(Verb.CREATE, replica.topic, replica.partition), *kept]


@BUGS.row(LogManager, "_promote", Images())
def M8_epochs(
    promote: Callable[..., None], self: LogManager, old: PartitionLog | None, future: PartitionLog, now_ms: int
) -> None:
    """Leader epochs not carried along."""
    promote(self, old, future, now_ms)
    future._epochs.clear()
    future._epochs.write(future.directory)


@BUGS.row(LogManager, "_inherit", Images())
def M8_checkpoints(_: object, self: LogManager, current: PartitionLog, future: PartitionLog) -> None:
    """The checkpoint of the high watermark not carried along."""
    future.advance_log_start(current.log_start_offset)
    future.flush()


@BUGS.row(
    copying,
    "align",
    Images(("follower",), masked_by="a truncation of the source truncates the copy too, and a start compares leader epochs"),
)
def X1_align(_: object, current: PartitionLog, future: PartitionLog) -> None:
    """A running copy is compared by length."""
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)
    future.truncate_to(min(current.log_end_offset, future.log_end_offset))


@BUGS.row(FoundDir, "progress", Images(("follower",), masked_by="truncations are durable before anything is appended"))
def X1_level(_: object, self: FoundDir) -> tuple[int, int]:
    """A copy that is found at a start is compared by length."""
    return 0, self.log_end_offset


@BUGS.row(LogSegments, "_sync_truncation", Images(("follower",), masked_by="a start compares leader epochs"))
def X1_sync(_: object, self: LogSegments, *, has_removed: bool) -> None:
    """A truncation is not durable before the next append."""


@BUGS.row(copying, "copy_chunk", Images(("full-target",)))
def X2_copy(
    copy_chunk: Callable[..., tuple[int, int]], current: PartitionLog, future: PartitionLog, max_bytes: int
) -> tuple[int, int]:
    """No space ends a copy as if it were whole."""
    try:
        return copy_chunk(current, future, max_bytes)
    except NoSpace:
        return 0, 0


@BUGS.row(Segment, "append", Images(("full-target",)))
def X2_append(
    append: Callable[..., None], self: Segment, data: bytes, headers: Sequence[BatchHeader], index_interval_bytes: int
) -> None:
    """Batches that did not fit on the target's disk count as written."""
    try:
        append(self, data, headers, index_interval_bytes)
    except OSError as error:
        if error.errno != errno.ENOSPC or not self.directory.name.endswith(DirKind.FUTURE.value):
            raise
        position = self.size_bytes
        for header in headers:
            self._account(position, header, INDEX_INTERVAL_BYTES)
            position += header.size_bytes


@BUGS.row(Partition, "truncate", Images(("follower",), masked_by="each chunk begins by making the copy a prefix of the source"))
async def X3_cut(_: object, self: Partition, leader_epoch: int, offset: int) -> None:
    """A truncation of the source leaves the copy as it is."""
    async with self.move_lock, self.lock:
        log = self._following_log(leader_epoch)
        if log is not None:
            await self._context.disks.run(log.log_dir, log.truncate_to, offset)
            self.notify()


@BUGS.row(copying, "align", Images(("follower",)))
def X3_align(_: object, current: PartitionLog, future: PartitionLog) -> None:
    """A copy is not made a prefix of its source."""
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)


HUNTED = (
    *("M1-swap+M1-ends", "M2", "M3", "M4", "M5+M7", "M6", "M7", "M8-epochs", "M8-checkpoints"),
    *("X1-align+X1-level+X1-sync", "X2-copy", "X2-append", "X3-cut+X3-align"),
)
"""All bugs of the table. Those that are masked are planted together with one that makes them show."""


def bugs_of(name: str) -> tuple[Mutant[Images], ...]:
    """Return the bugs in a name."""
    return tuple(BUGS[part] for part in name.split("+"))


def scripts_of(name: str) -> tuple[str, ...]:
    """Return the scripts to search for the bugs in a name, in order."""
    return tuple(dict.fromkeys(script for bug in bugs_of(name) for script in bug.limits.scripts))


def judged(script: str) -> Shown:
    """Judge the images of a script until one breaks a rule; samples come first. The rule is the crash that left the image, or
    `IN_THE_RUN`.
    """
    with quiet():
        recorded = record(script)
    if recorded.faults:
        return Shown(IN_THE_RUN, f"{script}: {recorded.faults[0]}")
    every = cases(recorded)
    wanted = sample(every) | every
    for broken in judge(recorded, wanted, limit=1):
        crash = f"{broken.case.crash}, {broken.without} missing" if broken.without else broken.case.crash
        return Shown(crash, f"{script}: {broken.fault}", [*wanted].index(broken.case) + 1)
    return Shown(attempts=len(wanted))
