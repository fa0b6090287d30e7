"""Crashes while a log is compacted: every image that a kill or a power cut can leave, and the judgement of the start on each.

A script appends records, compacts them, truncates, appends others and compacts again, in one thread, while the disk is recorded.
The images are those of `recovery.cases`. On each one the real start runs, and these rules must hold, at once and again after one
more record and one more compaction:

- the log ends where it has to: at the acknowledged end after a kill, at the durable one or later after a loss of power;
- offsets rise, each record is the one that was appended at its offset, and the last one of each key is there;
- a key that was deleted does not come back;
- no key occurs twice in the part that counts as compacted;
- the leader epochs are those of the records that were appended, with the same first offsets;
- no file of a half done compaction is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kraftlab.broker.log import compacting, compaction_filter, recovery
from kraftlab.broker.log.compacting import Compaction
from kraftlab.broker.log.compaction_filter import BatchFilter
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, Segment
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.checking.mutant import Shown, Table
from kraftlab.checking.scratch_directory import own_directory
from kraftlab.records.errors import LogError
from kraftlab.records.record_batch import BatchHeader, Record, build_batch, decode_records, validate

from .protocol import RecordedRun
from .recorder import Recorder
from .recovery import ANY_ORDER, IN_ORDER, KILL, Case, Demand, cases, quiet
from .watched_disks import lay_out
from .world import directory_id, format_disks, open_logs

TOPIC, TOPIC_ID, NUMBER = "t", b"crash-images-t-0", 0
CONFIG = LogConfig(segment_bytes=300, is_compacted=True, is_deleted=False, delete_retention_ms=1000)
BEGIN_MS = 1_000_000
MAP_BYTES = 1 << 20
EVERY_CRASH = (KILL, IN_ORDER, ANY_ORDER)
LEFT_OVER = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)

GONE = ""
"""In the place of the key of a record that nothing can bring back."""

Appended = list[tuple[int, str, bytes | None]]
"""(epoch, key, value) of every record, by offset. Each is a batch."""


class Run(NamedTuple):
    """A recorded script. `branches`: all records of the log, before and after each truncation."""

    recorded: RecordedRun
    branches: tuple[Appended, ...]


class _Script:
    def __init__(self, recorder: Recorder, log: PartitionLog, logs: LogManager) -> None:
        self.branches: list[Appended] = [[]]
        self._recorder, self._log, self._logs = recorder, log, logs
        self._now_ms = BEGIN_MS

    def append(self, epoch: int, keys: str) -> None:
        """Append a record for each letter; a capital one deletes the key."""
        for key in keys:
            value = None if key.isupper() else b"%d" % len(self.branches[-1])
            record = Record(key.lower().encode(), value, self._now_ms)
            self._log.append_as_leader(build_batch([record]), epoch)
            self.branches[-1].append((epoch, key.lower(), value))
            self._recorder.mark("acked", self._log.log_end_offset)
        self._log.high_watermark = self._log.log_end_offset

    def flush(self) -> None:
        self._log.flush()
        self._recorder.mark("durable", self._log.log_end_offset)
        self._logs.write_checkpoints()

    def compact(self, later_ms: int = 0) -> None:
        """Compact the log, and append a record in the middle of that."""
        self._now_ms += later_ms
        steps = Compaction(self._log, now_ms=self._now_ms, map_bytes=MAP_BYTES).steps()
        next(steps)
        self.append(self._log.latest_epoch, "z")
        for _ in steps:
            pass
        self._logs.write_cleaned_ends(self._log.log_dir)

    def truncate(self, offset: int) -> None:
        """Truncate the log to `offset` or below. Records that were replaced by truncated ones are gone too."""
        whole = self._log.read(0, 1 << 20)
        batches = [(at, header) for at, header in validate(whole) if header.end_offset <= offset]
        end = batches[-1][1].end_offset
        left = {record.offset for record in decode_records(whole[: batches[-1][0] + batches[-1][1].size_bytes])}
        before = self.branches[-1][:end]
        self.branches.append([item if at in left else (item[0], GONE, None) for at, item in enumerate(before)])
        self._recorder.mark("branch", (len(self.branches) - 1, end))
        self._log.truncate_to(offset)


def record() -> Run:
    """Run the script."""
    with own_directory() as root, quiet():
        disk = Path(root, "d0")
        format_disks([disk])
        recorder = Recorder([disk])
        with recorder.watching():
            logs = _start([disk])
            log = logs.get_or_create(TOPIC, TOPIC_ID, NUMBER, directory_id(disk), config=CONFIG)
            script = _Script(recorder, log, logs)
            recorder.mark("committed", directory_id(disk))
            script.append(1, "abcaB")
            script.append(2, "acadb")
            script.append(4, "aeaea")
            script.flush()
            recorder.mark("begun")
            script.compact()
            script.append(5, "xyCxy")
            script.flush()
            script.compact(later_ms=2000)
            script.append(5, "DAxyx")
            script.compact(later_ms=2000)
            script.truncate(17)
            script.append(6, "acaEa")
            script.flush()
            script.append(6, "acXca")
            script.compact(later_ms=2000)
            logs.abandon()
        return Run(RecordedRun("compaction", (disk.name,), tuple(recorder.trace), (), ()), tuple(script.branches))


def judge(run: Run, crashes: Sequence[str] = EVERY_CRASH, limit: int | None = None) -> list[str]:
    """Return the faults of all images, at most `limit`."""
    found: list[str] = []
    with own_directory() as root, quiet():
        for case, demand in cases(run.recorded, crashes).items():
            fault = _first_fault(Path(root), run, case, demand)
            if fault:
                found.append(f"{case.crash} before operation {case.step}: {fault}")
            if limit is not None and len(found) >= limit:
                break
    return found


def _start(disks: Sequence[Path]) -> LogManager:
    logs = open_logs(disks, config=CONFIG)
    logs.start([AssignedReplica(TOPIC, TOPIC_ID, NUMBER, directory_id(disks[0]))], 0)
    return logs


def _first_fault(root: Path, run: Run, case: Case, demand: Demand) -> str:
    disks = [root / name for name in run.recorded.disks]
    for disk in disks:
        shutil.rmtree(disk, ignore_errors=True)
    lay_out(root, case.tree)
    try:
        logs = _start(disks)
    except LogError as error:
        return f"the broker does not start: {error}"
    try:
        log = logs.get_or_create(TOPIC, TOPIC_ID, NUMBER, config=CONFIG)
        return _fault(log, run, case, demand) or _later_fault(log, run, demand)
    except LogError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        logs.abandon()


def _fault(log: PartitionLog, run: Run, case: Case, demand: Demand) -> str:
    """Return the first rule that a log breaks as it was found, "" if it keeps all."""
    if left := [path.name for path in log.directory.iterdir() if path.name.endswith(LEFT_OVER)]:
        return f"{', '.join(left)} is left"
    if log.log_end_offset < demand.batches:
        return f"{log!r} ends before offset {demand.batches}, which a crash ({case.crash}) must keep"
    first, *others = [_differences(log, branch) for branch in _possible(log, run, demand)]
    return first if first and all(others) else ""


def _possible(log: PartitionLog, run: Run, demand: Demand) -> list[Appended]:
    """Return what the log may hold: the branch that counts, or a part of the one before, while that is being truncated."""
    branch = run.branches[demand.branch]
    if not demand.branch:
        return [branch]
    whole, end = run.branches[demand.branch - 1], log.log_end_offset
    truncated = {key for _, key, _ in whole[end:]}
    return [branch, [(epoch, GONE if key in truncated else key, value) for epoch, key, value in whole[:end]]]


def _differences(log: PartitionLog, appended: Appended) -> str:
    """Return the first difference between a log and the records that were appended to it."""
    end = log.log_end_offset
    if end > len(appended):
        return f"{log!r} ends after the last record that was appended, {len(appended)}"
    data = log.read(log.log_start_offset, 1 << 20)
    for (_, before), (_, after) in pairwise(validate(data)):
        if after.base_offset < before.end_offset:
            return f"{after!r} comes after {before!r}"
    records = {record.offset: record for record in decode_records(data)}
    for offset, record in records.items():
        _, key, value = appended[offset]
        if (record.key, record.value) != (key.encode(), value) and key != GONE:
            return f"{record!r} is not what was appended at offset {offset}"
    last = {key: offset for offset, (_, key, _) in enumerate(appended[:end]) if key != GONE}
    for key, offset in last.items():
        is_deleted = appended[offset][2] is None
        if offset not in records and not is_deleted:
            return f"the last record of key {key}, at offset {offset}, is lost; there are {sorted(records)}"
        if offset not in records and any(record.key == key.encode() for record in records.values()):
            return f"key {key}, deleted at offset {offset}, has come back"
    compacted = [record.key for offset, record in records.items() if offset < log.cleaned_to]
    if len(set(compacted)) < len(compacted):
        return f"a key occurs twice below offset {log.cleaned_to}, to which {log!r} counts as compacted"
    epochs: dict[int, int] = {}
    for offset, (epoch, _, _) in enumerate(appended[:end]):
        epochs.setdefault(epoch, offset)
    found = {entry.epoch: entry.start_offset for entry in log.epochs if entry.start_offset < end}
    return "" if found == epochs else f"the leader epochs are {found}, those of the records {epochs}"


def _later_fault(log: PartitionLog, run: Run, demand: Demand) -> str:
    """Append a record and compact again."""
    end = log.log_end_offset
    branch = next(branch for branch in _possible(log, run, demand) if not _differences(log, branch))
    log.append_as_leader(build_batch([Record(b"new", b"record", BEGIN_MS)]), 9)
    log.high_watermark = log.log_end_offset
    for later_ms in (0, 100_000):
        for _ in Compaction(log, now_ms=BEGIN_MS + later_ms, map_bytes=MAP_BYTES).steps():
            pass
        fault = _differences(log, [*branch[:end], (9, "new", b"record")])
        if fault:
            return f"after one more compaction: {fault}"
    return ""


# --- planted bugs --------------------------------------------------------------------------------------------------------------

BUGS: Table[None] = Table()
"""Bugs of compaction and of its recovery. Some image shows each."""


@BUGS.row(Segment, "sync", None)
def C1(sync: object, self: Segment) -> None:
    """The new segment is not fsynced before it counts."""
    if not self.suffix and callable(sync):
        sync(self)


@BUGS.row(compacting, "fsync_directory", None)
def C2(_: object, path: Path) -> None:
    """The names are not made durable one after the other."""


@BUGS.row(Segment, "rename_files", None)
def C3(rename_files: object, self: Segment, suffix: str) -> None:
    """The old segments are removed while the new one still has the name of an unfinished one."""
    if suffix != SWAP_SUFFIX and callable(rename_files):
        rename_files(self, suffix)


@BUGS.row(recovery, "_complete_swap", None)
def C4(_: object, directory: Path, base: int) -> None:
    """A start gives the new segment its name and leaves the old ones that it replaces."""
    Segment.open_file(directory, base, SWAP_SUFFIX).rename_files("")


@BUGS.row(recovery, "_complete_swap", None)
def C5(_: object, directory: Path, base: int) -> None:
    """A start removes a new segment that counts already."""
    for path in directory.glob(f"*{SWAP_SUFFIX}"):
        path.unlink()


@BUGS.row(compacting, "without_records", None)
def C6(_: object, header: BatchHeader) -> bytes:
    """The last batch of a segment is dropped."""
    return b""


@BUGS.row(BatchFilter, "__call__", None)
def C7(keep: object, self: BatchFilter, header: BatchHeader, data: bytes, position: int = 0) -> bytes | None:
    """The first batch of a leader epoch is dropped."""
    self._epoch = max(self._epoch, header.leader_epoch)
    assert callable(keep)
    kept: bytes | None = keep(self, header, data, position)
    return kept


@BUGS.row(PartitionLog, "_lower_marks", None)
def C8(lower: object, self: PartitionLog, offset: int, log_start_offset: int) -> None:
    """A truncation leaves the end of the compacted part as it is."""
    cleaned_to = self._cleaned_to
    assert callable(lower)
    lower(self, offset, log_start_offset)
    self._cleaned_to = cleaned_to


@BUGS.row(compaction_filter, "without_records", None, also=(compacting,))
def C9(empty: object, header: BatchHeader) -> bytes | None:
    """A header that stays without its records has its last offset only."""
    assert callable(empty)
    moved = header._replace(base_offset=header.last_offset + 1, last_offset_delta=0, record_count=1)
    kept: bytes | None = empty(moved)
    return kept


def judged(crash: str) -> Shown:
    """Judge the images that crashes of that kind leave of the script."""
    broken = judge(record(), [crash], limit=1)
    return Shown(crash, broken[0]) if broken else Shown()
