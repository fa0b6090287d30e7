"""Bugs planted in the mover and in the recovery of its crashes, to see that the images find them.

Each is a patch from outside; one whose target is gone says so (MutantDoesNotApply). A mutant is one of them or several together
("M5+M7"). Some show only together with another: the protocol's mistake is masked by a recovery that looks further than the
metadata, and the recovery's by a protocol that never lets it matter; `masked_by` says what stands in the way of each.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kraftlab.checking.mutant import Mutant, MutantDoesNotApply, planted
from kraftlab.metadata.uuids import Uuid

from ..log import log_manager, partition_log, startup
from ..log.dir_names import DirKind
from ..log.errors import LogClosed, NoSpace
from ..log.files import rename_new
from ..log.log_manager import LogManager
from ..log.partition_log import PartitionLog
from ..log.record_batch import BatchHeader
from ..log.segment import Segment
from ..log.startup import Action, AssignedReplica, FoundDir, Row, Verb
from ..moves import mover
from ..moves.move_state import MoveEvent
from ..moves.mover import Move, Mover, wall_clock_ms
from ..replication.partition import Partition
from .protocol import SCRIPTS, record
from .recovery import Judged, cases, judge, quiet

IN_THE_RUN = "the run itself"


class MoverBug(NamedTuple):
    """`patches` are the same change wherever the code looks it up; `scripts` are where it is looked for, in this order.
    `masked_by`: why it does no harm alone, "" if it does.
    """

    name: str
    about: str
    patches: tuple[Mutant, ...]
    scripts: tuple[str, ...] = ("idle", "dead-source", "changed-mind", "busy")
    masked_by: str = ""


class Hunted(NamedTuple):
    """`images` were judged, the last one broke a rule if it was `found`. `crash`: what kind of crash left it, or `IN_THE_RUN`."""

    name: str
    found: bool
    images: int
    script: str
    crash: str
    fault: str
    seconds: float


def _patch(name: str, owner: object, attribute: str, make: Callable[..., object]) -> Mutant:
    return Mutant(name, "", owner, attribute, make)


def _swap_at_once(_: object) -> Callable[[Mover, Move], Awaitable[bool]]:
    async def mutated(self: Mover, move: Move) -> bool:
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

    return mutated


def _ends_not_compared(_: object) -> Callable[[LogManager, Uuid, int, int], PartitionLog]:
    def mutated(self: LogManager, topic_id: Uuid, partition: int, now_ms: int) -> PartitionLog:
        with self._lock:
            current, future = self._currents[topic_id, partition], self._futures[topic_id, partition]
            source = self._online[current.log_dir]
            future.flush()
            with current.exclusive(), future.exclusive():
                self._inherit(current, future)
                self._promote(current, future, now_ms)
                self._currents[topic_id, partition] = future
                del self._futures[topic_id, partition]
            source.write_checkpoints(partial(self._logs_in, source.path))
            return future

    return mutated


def _futures_not_flushed(flush: Callable[[PartitionLog], None]) -> Callable[[PartitionLog], None]:
    def mutated(self: PartitionLog) -> None:
        if not self.directory.name.endswith(DirKind.FUTURE.value):
            flush(self)

    return mutated


def _names_not_flushed(_: object) -> Callable[[Path, Path], None]:
    return rename_new


Promote = Callable[[LogManager, PartitionLog | None, PartitionLog, int], None]


def _source_deleted_first(promote: Promote) -> Promote:
    def mutated(self: LogManager, old: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        if old is not None:
            old.close(LogClosed(f"{old.name} has moved"))
            shutil.rmtree(old.directory)
        promote(self, None, future, now_ms)

    return mutated


def _told_at_once(
    begin: Callable[[Mover, Partition, PartitionLog], Move],
) -> Callable[[Mover, Partition, PartitionLog], Move]:
    def mutated(self: Mover, partition: Partition, future: PartitionLog) -> Move:
        move = begin(self, partition, future)
        self._assign(*partition.id, move.target_id)
        return move

    return mutated


def _incomplete_promoted(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(row._replace(home=None, level=None) if row.verb is Verb.PROMOTE and row.has_current else row for row in rows)


Plan = Callable[..., list[Action]]


def _created_where_assigned(plan: Plan) -> Plan:
    def mutated(
        found: Sequence[FoundDir], replica: AssignedReplica, *, good_dirs: Sequence[Uuid], has_bad_dirs: bool
    ) -> list[Action]:
        is_there = any(item.log_dir == replica.directory and item.kind is DirKind.CURRENT for item in found)
        if is_there or replica.directory not in good_dirs:
            return plan(found, replica, good_dirs=good_dirs, has_bad_dirs=has_bad_dirs)
        kept = [Action(Verb.KEEP, item.topic, item.partition, item) for item in found]
        return [Action(Verb.CREATE, replica.topic, replica.partition), *kept]

    return mutated


def _epochs_left(promote: Promote) -> Promote:
    def mutated(self: LogManager, old: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        promote(self, old, future, now_ms)
        future._epochs.clear()
        future._epochs.write(future.directory)

    return mutated


def _checkpoints_left(_: object) -> Callable[[LogManager, PartitionLog, PartitionLog], None]:
    def mutated(self: LogManager, current: PartitionLog, future: PartitionLog) -> None:
        future.advance_log_start(current.log_start_offset)
        future.flush()

    return mutated


def _aligned_by_length(_: object) -> Callable[[PartitionLog, PartitionLog], None]:
    def mutated(current: PartitionLog, future: PartitionLog) -> None:
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        future.truncate_to(min(current.log_end_offset, future.log_end_offset))

    return mutated


def _level_by_length(_: object) -> property:
    def mutated(self: FoundDir) -> tuple[int, int]:
        return 0, self.log_end_offset

    return property(mutated)


CopyChunk = Callable[[PartitionLog, PartitionLog, int], tuple[int, int]]


def _full_is_done(copy_chunk: CopyChunk) -> CopyChunk:
    def mutated(current: PartitionLog, future: PartitionLog, max_bytes: int) -> tuple[int, int]:
        try:
            return copy_chunk(current, future, max_bytes)
        except NoSpace:
            return 0, 0

    return mutated


def _full_is_written(append: Callable[..., None]) -> Callable[[Segment, bytes, Sequence[BatchHeader]], None]:
    def mutated(self: Segment, data: bytes, headers: Sequence[BatchHeader]) -> None:
        try:
            append(self, data, headers)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.directory.name.endswith(DirKind.FUTURE.value):
                raise
            position = self.size_bytes
            for header in headers:
                self._account(position, header)
                position += header.size_bytes

    return mutated


def _cut_alone(_: object) -> Callable[[Partition, int, int], Awaitable[None]]:
    async def mutated(self: Partition, leader_epoch: int, offset: int) -> None:
        async with self.move_lock, self.lock:
            log = self._following_log(leader_epoch)
            if log is not None:
                await self._around.disks.run(log.log_dir, log.truncate_to, offset)
                self.notify()

    return mutated


def _never_aligned(_: object) -> Callable[[PartitionLog, PartitionLog], None]:
    def mutated(current: PartitionLog, future: PartitionLog) -> None:
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)

    return mutated


BUGS: dict[str, MoverBug] = {
    bug.name: bug
    for bug in (
        MoverBug(
            "M1-swap",
            "the swap comes without the last chunk",
            (_patch("M1-swap", Mover, "_swap", _swap_at_once),),
            ("busy",),
            "the log manager compares the ends",
        ),
        MoverBug(
            "M1-ends",
            "the log manager does not compare the ends",
            (_patch("M1-ends", LogManager, "swap", _ends_not_compared),),
            ("busy",),
            "the mover copies the last chunk while nothing is appended",
        ),
        MoverBug("M2", "future files not fsynced before the swap", (_patch("M2", PartitionLog, "flush", _futures_not_flushed),)),
        MoverBug("M3", "no directory fsync after rename", (_patch("M3", partition_log, "rename_durably", _names_not_flushed),)),
        MoverBug(
            "M4", "source deleted before the rename is durable", (_patch("M4", LogManager, "_promote", _source_deleted_first),)
        ),
        MoverBug(
            "M5",
            "controller told before the data are in the new directory",
            (_patch("M5", Mover, "begin", _told_at_once),),
            masked_by="no recovery trusts the metadata alone, and no copy is served while its source may be there",
        ),
        MoverBug("M6", "recovery promotes an incomplete copy", (_patch("M6", startup, "ROWS", _incomplete_promoted),)),
        MoverBug(
            "M7",
            "recovery creates an empty log where the assigned directory has none",
            (
                _patch("M7", startup, "plan_replica", _created_where_assigned),
                _patch("M7", log_manager, "plan_replica", _created_where_assigned),
            ),
        ),
        MoverBug("M8-epochs", "leader epochs not carried along", (_patch("M8-epochs", LogManager, "_promote", _epochs_left),)),
        MoverBug(
            "M8-checkpoints",
            "the checkpoint of the high watermark not carried along",
            (_patch("M8-checkpoints", LogManager, "_inherit", _checkpoints_left),),
        ),
        MoverBug(
            "X1-align",
            "a running copy is compared by length",
            (_patch("X1-align", mover, "align", _aligned_by_length),),
            ("follower",),
            "what is cut from the source is cut from the copy, and a start compares leader epochs",
        ),
        MoverBug(
            "X1-level",
            "a copy that is found at a start is compared by length",
            (_patch("X1-level", FoundDir, "progress", _level_by_length),),
            ("follower",),
        ),
        MoverBug(
            "X2-copy",
            "no space ends a copy as if it were whole",
            (_patch("X2-copy", mover, "copy_chunk", _full_is_done),),
            ("full-target",),
        ),
        MoverBug(
            "X2-append",
            "what did not fit on the target's disk counts as written",
            (_patch("X2-append", Segment, "append", _full_is_written),),
            ("full-target",),
        ),
        MoverBug(
            "X3-cut",
            "what is cut from the source stays in the copy",
            (_patch("X3-cut", Partition, "truncate", _cut_alone),),
            ("follower",),
            "each chunk begins by making the copy a prefix of the source",
        ),
        MoverBug(
            "X3-align",
            "a copy is not made a prefix of its source",
            (_patch("X3-align", mover, "align", _never_aligned),),
            ("follower",),
        ),
    )
}


def bugs_of(name: str) -> tuple[MoverBug, ...]:
    """Of a mutant. MutantDoesNotApply if there is one of them that there is not."""
    unknown = [part for part in name.split("+") if part not in BUGS]
    if unknown:
        raise MutantDoesNotApply(f"{name}: there is no bug of the mover {', '.join(unknown)}; there are: {', '.join(BUGS)}")
    return tuple(BUGS[part] for part in name.split("+"))


@contextmanager
def planted_together(name: str) -> Iterator[None]:
    """All bugs of a mutant. MutantDoesNotApply."""
    with ExitStack() as stack:
        for bug in bugs_of(name):
            for patch in bug.patches:
                stack.enter_context(planted(patch))
        yield


def hunt(name: str, scripts: Sequence[str] = ()) -> Hunted:
    """Image after image of those scripts, the bugs' own if none are given, until one breaks a rule. MutantDoesNotApply."""
    begun, images = time.process_time(), 0
    scripts = scripts or tuple(dict.fromkeys(script for bug in bugs_of(name) for script in bug.scripts))

    def hunted(script: str, crash: str, fault: str) -> Hunted:
        return Hunted(name, bool(fault), images, script, crash, fault, time.process_time() - begun)

    with planted_together(name):
        for script in scripts:
            with quiet():
                recorded = record(script)
            if recorded.faults:
                return hunted(script, IN_THE_RUN, recorded.faults[0])
            wanted = cases(recorded)
            broken = judge(recorded, wanted, limit=1)
            if broken:
                images += [*wanted].index(broken[0].case) + 1
                return hunted(script, crash_of(broken[0]), broken[0].fault)
            images += len(wanted)
    return hunted("", "", "")


def crash_of(judged: Judged) -> str:
    """In words."""
    return f"{judged.case.crash}, {judged.without} missing" if judged.without else judged.case.crash


class Surveyed(NamedTuple):
    """How many images of a script a mutant makes, and how many of them break a rule, by the kind of crash."""

    name: str
    script: str
    images: int
    broken: dict[str, int]
    faults: tuple[str, ...]


def survey(name: str, scripts: Sequence[str] = tuple(SCRIPTS)) -> list[Surveyed]:
    """All images of all scripts. MutantDoesNotApply."""
    found = []
    with planted_together(name):
        for script in scripts:
            with quiet():
                recorded = record(script)
            wanted = cases(recorded)
            broken: dict[str, int] = {}
            for judged in judge(recorded, wanted):
                broken[crash_of(judged)] = broken.get(crash_of(judged), 0) + 1
            found.append(Surveyed(name, script, len(wanted), broken, recorded.faults))
    return found
