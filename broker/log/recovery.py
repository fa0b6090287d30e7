"""Opening a partition's directory: the files that count, the checks, the truncation.

After a clean shutdown the segments are trusted: only the newest headers of each are walked, to find the log's end and to see that
no segment begins within another. After a crash every segment that reaches above the recovery point is read batch by batch with
its CRCs; `recovery_plan.py` has the verdicts. At the first bad byte the segment is truncated and all later segments are deleted.
Segments above the recovery point that do not begin where the one before ends are deleted too: a loss of power may have kept them
and not the records before. A batch of a lower epoch than one before it ends the log, too: it was truncated, other records were
appended in its place, and a loss of power has kept the append and not the truncation. Truncated records had not been fsynced, so
the in-sync replicas have them elsewhere and they are fetched again. Bytes below the recovery point are not read: damage there is
found by the next reader.

A segment within the offsets of the one before is passed over, and the segments after it stay: a person or another program has put
it there. Among trusted segments it is not known which one that is, so nothing is changed and the log is doubtful.

Segments wholly below the log start are removed unread: a crash has kept them, or brought them back, and what is missing there
must not cost the records above.

Producers are those of the newest snapshot below the scanned part, and of all batches after it.

Leader epochs above the scanned part are taken from the batches; a missing or corrupt epoch file is rebuilt from all headers.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from kraftlab.common.clock import wall_clock_ms
from kraftlab.config.regular_files import clear_place, odd_thing_at
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import BatchHeader

from . import leader_epochs, producer_snapshots
from .errors import CorruptFile, DoubtfulLog
from .files import fsync_directory
from .indexes import LOG_SUFFIX, OFFSETS, TIMES
from .leader_epochs import LeaderEpochs
from .producer_state import ProducerState
from .recovery_plan import RecoveryFacts, Verdict, judge, reason_to_end
from .segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, Segment, base_offset_of, file_name

logger = logging.getLogger(__name__)

SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSETS.suffix, TIMES.suffix)
JUNK_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")
SEGMENT_NAMES = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)
BUILT_AGAIN = (OFFSETS.suffix, TIMES.suffix, producer_snapshots.SUFFIX, *JUNK_SUFFIXES)
NOTHING_SCANNED = 2**63


class RecoveryReport(msgspec.Struct, frozen=True):
    """Cost of opening a log. `reason`: None if nothing was truncated."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    deleted_segments: tuple[str, ...] = ()
    reason: str | None = None


class OpenedLog(msgspec.Struct, frozen=True):
    segments: tuple[Segment, ...]
    """At least one, by base offset; the last is the active one."""
    epochs: LeaderEpochs
    report: RecoveryReport
    producers: ProducerState


def new_segments(directory: Path, start_offset: int) -> OpenedLog:
    """Make the first segment of a log in a new directory. OSError."""
    return OpenedLog((Segment.create(directory, start_offset),), LeaderEpochs(), RecoveryReport(), ProducerState())


def open_segments(directory: Path, *, recovery_point: int, clean: bool, start_offset: int) -> OpenedLog:
    """Open all segments of the log in `directory`, and create an empty one at `start_offset` if there is none.

    `start_offset` is the checkpointed log start: a log that ends below it is wiped and begins there. OSError if the disk fails.
    DoubtfulLog if something was put among the segments; no segment was changed then.
    """
    _clear_odd_things(directory)
    names = tidy(directory)
    named = [(name, base_offset_of(name)) for name in names if name.endswith(LOG_SUFFIX)]
    bases = sorted(base for name, base in named if base is not None and name == file_name(base, LOG_SUFFIX))
    _check_trusted(directory, bases, recovery_point=recovery_point, clean=clean, start_offset=start_offset)
    bases = _remove_empty_within(directory, _remove_below_start(directory, bases, start_offset))
    epochs = _read_epochs(directory) if leader_epochs.FILE_NAME in names else None
    recovered = LeaderEpochs() if epochs is None else epochs
    has_snapshots = any(name.endswith(producer_snapshots.SUFFIX) for name in names)
    opening = _Opening(directory, recovered, clean=clean, recovery_point=recovery_point)
    opening.open(bases)
    segments, report, scanned_from, producers = opening.segments, opening.report, opening.scanned_from, opening.producers
    if epochs is None:
        _assign_all(recovered, (s for s in segments if s.base_offset < scanned_from), segments)
    while len(segments) > 1 and not segments[-1].size_bytes:
        segments.pop().delete()
    if segments and segments[-1].base_offset < scanned_from and not _load(segments[-1]):
        report, scanned_from = _scan_last(segments[-1], recovered), segments[-1].base_offset
    if producers is None and segments and has_snapshots:
        producers = producer_snapshots.rebuild(directory, segments, segments[-1].end_offset)
    # Without snapshots after a clean shutdown there were no producers.
    producers = producers or ProducerState()
    if segments and segments[-1].end_offset < start_offset:
        logger.warning("%s ends at %d, below its start %d: wiped", directory, segments[-1].end_offset, start_offset)
        while segments:
            segments.pop().delete()
        recovered.clear()
        producers.clear()
    if not segments:
        segments.append(Segment.create(directory, start_offset))
    recovered.truncate_from_end(segments[-1].end_offset)
    if has_snapshots:
        # Above the scanned segment, a snapshot may be older than the records that were truncated and replaced.
        producer_snapshots.remove_outside(directory, segments[0].base_offset, min(scanned_from, segments[-1].end_offset))
    if report.reason:
        logger.warning(
            "%s was truncated to offset %d, %d bytes and %d later segments lost: %s",
            *(directory, segments[-1].end_offset, report.cut_bytes, len(report.deleted_segments), report.reason),
        )
    return OpenedLog(tuple(segments), recovered, report, producers)


def _clear_odd_things(directory: Path) -> None:
    """Remove directories, FIFOs and the like in the places of files that are built again. DoubtfulLog if one is in the place of a
    segment. OSError.
    """
    with os.scandir(directory) as entries:
        odd = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    for name in sorted(odd, key=lambda name: not name.endswith(SEGMENT_NAMES)):
        path = directory / name
        if name.endswith(SEGMENT_NAMES) and base_offset_of(name) is not None and (fault := odd_thing_at(path)):
            raise DoubtfulLog(f"{path} is {fault} and restart the broker")
        if name.endswith(BUILT_AGAIN):
            clear_place(path)


def _check_trusted(directory: Path, bases: list[int], *, recovery_point: int, clean: bool, start_offset: int) -> None:
    """DoubtfulLog if a segment begins within the offsets of one before and both are trusted, or if it does not continue the log
    above its end at the clean stop. Empty and damaged segments are passed over, and offsets below the log start. OSError.
    """
    end_offset, last = 0, ""
    for base, following in pairwise(bases):
        if not clean and following > recovery_point:
            return
        before = Segment.open_file(directory, base)
        with suppress(CorruptBatch):
            if before.end_offset > end_offset:
                end_offset, last = before.end_offset, before.log_path.name
        before.close()
        segment = Segment.open_file(directory, following)
        if not segment.size_bytes:
            continue
        if end_offset > max(following, start_offset):
            raise DoubtfulLog(
                f"{segment.log_path} begins below offset {end_offset}, where {last} ends: one of the two does not belong there; "
                "move that file away and restart the broker"
            )
        if clean and end_offset < following and 0 < recovery_point < following:
            raise DoubtfulLog(
                f"{segment.log_path} begins above offset {recovery_point}, where the log ended when the broker stopped; "
                "move that file away and restart the broker"
            )


def _remove_below_start(directory: Path, bases: list[int], start_offset: int) -> list[int]:
    """Remove the segments that another one at or below the log start follows; return the base offsets of the others. OSError."""
    count = max(bisect_right(bases, start_offset) - 1, 0)
    for base in bases[:count]:
        Segment.open_file(directory, base).delete()
    return bases[count:]


def _remove_empty_within(directory: Path, bases: list[int]) -> list[int]:
    """Remove the empty segments that begin within the offsets of the one before; return the base offsets of the others. OSError.

    The broker never leaves one: it would hide the records of the segment before from readers.
    """
    kept: list[Segment] = []
    for base in bases:
        segment = Segment.open_file(directory, base)
        if kept and not segment.size_bytes and _reaches_above(kept[-1], base):
            logger.warning("%s is empty and lies within the offsets of %s: removed", segment.log_path, kept[-1].log_path.name)
            segment.delete()
        else:
            kept.append(segment)
    return [segment.base_offset for segment in kept]


def _reaches_above(segment: Segment, offset: int) -> bool:
    """Return True if a batch of `segment` ends above `offset`; a damaged segment counts as far as it can be read."""
    with suppress(CorruptBatch):
        return any(header.end_offset > offset for _, header in segment.headers())
    return False


def tidy(directory: Path) -> Collection[str]:
    """Finish or undo work that a crash left half done: junk, `.swap` files of a compaction, lone indexes. Return the names of the
    files that are there then.

    A `.swap` beside a `.cleaned` of the same offset or a lower one is undone: only another program leaves both, which renames
    several new segments before it removes the old ones.
    """
    names = os.listdir(directory)
    half_done = [name for name in names if name.endswith(JUNK_SUFFIXES)]
    unfinished = [base for name in names if name.endswith(CLEANED_SUFFIX) and (base := base_offset_of(name)) is not None]
    for name in sorted(half_done):
        base = base_offset_of(name)
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and base is not None and base < min(unfinished, default=base + 1):
            _complete_swap(directory, base)
        else:
            (directory / name).unlink(missing_ok=True)
    left = set(os.listdir(directory) if half_done else names)
    for name in list(left):
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (OFFSETS.suffix, TIMES.suffix) and stem + LOG_SUFFIX not in left:
            (directory / name).unlink()
            left.discard(name)
    return left


def _complete_swap(directory: Path, base: int) -> None:
    """Let a compacted segment replace the segments within its offsets, which goes the same way after a crash in the middle."""
    compacted = Segment.open_file(directory, base, SWAP_SUFFIX)
    end_offset = base
    try:
        for _, header in compacted.headers():
            end_offset = header.end_offset
    except CorruptBatch as error:
        logger.error("%s replaces other segments only as far as it can be read: %s", compacted.log_path, error)
    for path in directory.iterdir():
        old = base_offset_of(path.name)
        if old is not None and base <= old < max(end_offset, base + 1) and path.suffix in SEGMENT_SUFFIXES:
            path.unlink()
    fsync_directory(directory)
    compacted.rename_files("")
    fsync_directory(directory)
    compacted.close()
    logger.info("%s was compacted just before the crash: the new segment %s is in place", directory, compacted.log_path.name)


def _read_epochs(directory: Path) -> LeaderEpochs | None:
    try:
        return leader_epochs.read(directory)
    except CorruptFile as error:
        logger.warning("leader epochs are rebuilt from the batches: %s", error)
        return None


class _Opening:
    """The segments that stay, in order, and the cost of opening them. `scanned_from`: base offset of the first scanned segment,
    whose epochs are noted; `producers`: None if no segment was scanned.
    """

    def __init__(self, directory: Path, epochs: LeaderEpochs, *, clean: bool, recovery_point: int) -> None:
        self._directory, self._epochs, self._clean, self._recovery_point = directory, epochs, clean, recovery_point
        self._now_ms = wall_clock_ms()
        self.segments: list[Segment] = []
        self.scanned_from = NOTHING_SCANNED
        self.producers: ProducerState | None = None
        self.report = RecoveryReport()

    def open(self, bases: Sequence[int]) -> None:
        """Judge each segment and apply the verdict. OSError."""
        for place, base in enumerate(bases):
            following = bases[place + 1] if place + 1 < len(bases) else None
            segment = Segment.open_file(self._directory, base)
            found = self._facts(segment, following)
            verdict = judge(found)
            if verdict is Verdict.KEEP:
                self.segments.append(segment)
            elif verdict is Verdict.PASS_OVER:
                _set_aside(segment, found.end_before)
            elif verdict is Verdict.END:
                segment.close()
                self._end(reason_to_end(found), bases[place:])
                return
            elif (fault := self._scan(segment)) is not None:
                self._end(f"{segment.log_path.name}: {fault}", bases[place + 1 :])
                return

    def _facts(self, segment: Segment, following: int | None) -> RecoveryFacts:
        base, recovery_point = segment.base_offset, self._recovery_point
        if self._clean or (following is not None and following <= recovery_point):
            return RecoveryFacts(base, base, True, True, recovery_point)
        end_before = _end_before(self.segments[-1], base) if self.segments else base
        reaches_above_end = end_before <= base or _reaches_above(segment, end_before)
        return RecoveryFacts(base, end_before, False, reaches_above_end, recovery_point)

    def _scan(self, segment: Segment) -> CorruptBatch | None:
        """Read a segment and truncate it at the first bad byte; return the reason if there was one."""
        base, size_bytes = segment.base_offset, segment.size_bytes
        if self.scanned_from == NOTHING_SCANNED:
            self.scanned_from = base
            self._epochs.truncate_from_end(base)
        if self.producers is None:
            self.producers = producer_snapshots.rebuild(self._directory, self.segments, base)
        fault = segment.recover(partial(_take, self._epochs, self.producers, self._now_ms))
        self.segments.append(segment)
        self.report = msgspec.structs.replace(
            self.report,
            scanned_bytes=self.report.scanned_bytes + size_bytes,
            cut_bytes=self.report.cut_bytes + size_bytes - segment.size_bytes,
        )
        return fault

    def _end(self, reason: str, later: Sequence[int]) -> None:
        """Delete the later segments, the newest first."""
        cut_bytes = self.report.cut_bytes
        for base in reversed(later):
            segment = Segment.open_file(self._directory, base)
            cut_bytes += segment.size_bytes
            segment.delete()
        deleted = tuple(file_name(base, LOG_SUFFIX) for base in later)
        self.report = msgspec.structs.replace(self.report, cut_bytes=cut_bytes, deleted_segments=deleted, reason=reason)


def _set_aside(segment: Segment, end_before: int) -> None:
    """Take a segment out of the log that lies within the offsets of the one before. OSError."""
    logger.warning(
        "%s lies within the offsets of the segment before, which ends at %d: passed over, and kept as %s until the next start",
        *(segment.log_path, end_before, segment.log_path.name + DELETED_SUFFIX),
    )
    segment.rename_files(DELETED_SUFFIX)


def _take(epochs: LeaderEpochs, producers: ProducerState, now_ms: int, header: BatchHeader) -> str | None:
    """Note the epoch and the producer of a batch, or return the reason why the batch was truncated before the crash."""
    if 0 <= header.leader_epoch < epochs.latest_epoch:
        here = f"a batch of epoch {header.leader_epoch} at offset {header.base_offset}"
        return f"{here}, after epoch {epochs.latest_epoch} has begun"
    epochs.assign(header.leader_epoch, header.base_offset)
    producers.update(header, now_ms)
    return None


def _end_before(segment: Segment, base: int) -> int:
    """Return the end of the segment before the one at `base`. A trusted one that cannot be read ends there: its records were
    durable, so the damage is the disk's, and the segments after it are no less good.
    """
    try:
        return segment.end_offset
    except CorruptBatch as error:
        logger.error("%s is damaged below the recovery point; the segments after it stay: %s", segment.log_path, error)
        return base


def _load(segment: Segment) -> bool:
    """Open the active segment, if it can be read."""
    try:
        segment.load()
    except CorruptBatch as error:
        logger.warning("%s was trusted but cannot be read and is scanned: %s", segment.log_path, error)
        return False
    return True


def _scan_last(segment: Segment, epochs: LeaderEpochs) -> RecoveryReport:
    """Truncate the last segment at the first bad byte. The other segments are trusted."""
    epochs.truncate_from_end(segment.base_offset)
    size_bytes = segment.size_bytes
    fault = segment.recover(partial(_take, epochs, ProducerState(), 0))
    reason = f"{file_name(segment.base_offset, LOG_SUFFIX)}: {fault}" if fault is not None else None
    return RecoveryReport(size_bytes, size_bytes - segment.size_bytes, (), reason)


def _assign_all(epochs: LeaderEpochs, segments: Iterable[Segment], all_segments: list[Segment]) -> None:
    """Rebuild the table from the headers of `segments`, of a damaged one as far as they can be read, then add the entries that
    the scan of the later ones had found.
    """
    found = epochs.entries
    epochs.clear()
    for segment in segments:
        with suppress(CorruptBatch):
            for _, header in segment.headers():
                epochs.assign(header.leader_epoch, header.base_offset)
    for epoch, start_offset in found:
        if start_offset < all_segments[-1].end_offset:
            epochs.assign(epoch, start_offset)
