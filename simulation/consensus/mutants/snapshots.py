"""Bugs of snapshots and of repair: their content, cleaning and installation, and the claims of a damaged log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlab.checking.mutant import Table
from kraftlab.quorum.core.elections import Elections
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.membership import Membership
from kraftlab.quorum.core.repair import Repair
from kraftlab.quorum.core.snapshots import SnapshotContext, Snapshots
from kraftlab.quorum.core.types import OffsetAndEpoch, Standing
from kraftlab.quorum.storage import metadata_store, recovery
from kraftlab.quorum.storage.metadata_log import MetadataLog
from kraftlab.quorum.storage.snapshot_file import SnapshotDecoder, SnapshotSummary
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()

ROT = ("take-snapshot", "rot", "kill", "power-cut", "crash-in-recovery", "resign", "partition", "replace-disk")


@MUTANTS.row(Snapshots, "context", Seeds("S13"))
def snapshot_named_by_the_last_epoch(
    context: Callable[..., SnapshotContext | None], self: Snapshots, *arguments: object
) -> SnapshotContext | None:
    """A snapshot's id has the log's last epoch, not that of the record before its end."""
    found = context(self, *arguments)
    return found and found._replace(id=OffsetAndEpoch(found.id.offset, self._log.view.last_epoch))


@MUTANTS.row(
    Snapshots,
    "voters_at",
    Seeds(
        "S13",
        most=150,
        faults=("take-snapshot", "add-voter", "remove-voter", "transfer-leadership", "partition", "isolate", "slow-disk"),
    ),
)
def snapshot_has_the_newest_voters(voters_at: Callable[..., object], self: Snapshots, offset: int) -> object:
    """A snapshot names the voters at the log's end, committed or not."""
    return voters_at(self, self._log.view.end_offset)


@MUTANTS.row(LocalLog, "clean", Seeds("S13", "InvariantViolation"))
def cleaned_above_the_snapshot(clean: Callable[..., None], self: LocalLog, start: OffsetAndEpoch) -> None:
    """The log is cleaned up to the high watermark, beyond the snapshot's end."""
    clean(self, self.view.position_at(self.high_watermark) or start)


@MUTANTS.row(LocalLog, "install", Seeds("S13", "InvariantViolation", "S9", "L2"))
def high_watermark_not_raised_on_install(install: Callable[..., None], self: LocalLog, *arguments: object) -> None:
    """An installed snapshot does not raise the high watermark (KAFKA-9491)."""
    high_watermark = self.high_watermark
    install(self, *arguments)
    self.high_watermark = high_watermark
    self._out.pop()


@MUTANTS.row(
    Membership,
    "reset",
    Seeds(
        "S13",
        "CorruptBatch",
        "S12",
        "S8",
        "L2",
        faults=("take-snapshot", "add-voter", "remove-voter", "replace-disk", "isolate", "kill"),
    ),
)
def snapshot_voters_ignored(_: object, self: Membership, control: object) -> bool:
    """An installed snapshot's voters are ignored (ScyllaDB 9551)."""
    return False


@MUTANTS.row(recovery, "read_summary", Seeds("LogCorrupt", "L1", "L2", "D2", "S13", most=100, faults=ROT))
def snapshot_not_checked(_: object, file: Any, position: OffsetAndEpoch) -> object:
    """A start takes the snapshots that it finds as they are."""
    decoder = SnapshotDecoder(file, position)
    return SnapshotSummary(
        id=position,
        size_bytes=file.size(),
        record_count=0,
        cluster_id=decoder.header.cluster_id,
        generation=decoder.header.generation,
        last_crc=decoder.header.last_crc,
        append_time_ms=decoder.header.append_time_ms,
        control=decoder.control,
    )


@MUTANTS.row(Snapshots, "lost", Seeds("L2"))
def rotten_snapshot_stays(_: object, self: Snapshots, snapshot: OffsetAndEpoch) -> bool:
    """A snapshot that can not be read is not written again."""
    return False


@MUTANTS.row(Snapshots, "lost", Seeds("L2"))
def rotten_snapshot_waits_for_news(lost: Callable[..., bool], self: Snapshots, snapshot: OffsetAndEpoch) -> bool:
    """A snapshot that can not be read is replaced when there is a newer one, not before."""
    is_asked_for = lost(self, snapshot)
    self._lost = None
    return is_asked_for


@MUTANTS.row(
    SnapshotStore,
    "store_part",
    Seeds("D3", most=150, faults=("take-snapshot", "resign", "pause", "isolate", "clog", "transfer-leadership")),
)
def chunk_at_the_end(_: object, self: SnapshotStore, position: OffsetAndEpoch, start: int, data: bytes) -> int:
    """A piece of a snapshot is written at the end of the file, wherever it belongs."""
    file = self._part_file(position)
    size = file.size()
    file.pwrite(data, size)
    return size + len(data)


@MUTANTS.row(SnapshotStore, "remove_below", Seeds("S13", "InvariantViolation", "LogCorrupt", "D1", "D2"))
def snapshot_removed_with_the_rest(_: object, self: SnapshotStore, position: OffsetAndEpoch) -> None:
    """Cleaning removes the snapshot that the log starts at."""
    with self._lock:
        self._remove([other for other in self._finished if other.offset <= position.offset])


@MUTANTS.row(
    MetadataLog,
    "_install",
    Seeds("D1", "D2", "LogCorrupt", faults=("take-snapshot", "crash-in-flush", "isolate", "replace-disk")),
)
def segments_removed_before_the_install(_: object, self: MetadataLog, position: OffsetAndEpoch) -> None:
    """The old log is removed before the snapshot has its name."""
    removed, self._segments = self._segments, []
    self._unwanted += [segment.file.path for segment in removed]
    self._retire(removed)
    self._remove_unwanted()
    self._snapshots.adopt(position)
    self.durable_end_offset = position.offset


@MUTANTS.row(Elections, "on_vote", Seeds("S18", "S6", most=100, faults=ROT))
def repairers_vote(on_vote: Callable[..., object], self: Elections, request: object, standing: Standing, now_ms: int) -> object:
    """A node that repairs a damaged log votes."""
    repair = self._quorum.repair
    until, repair.until = repair.until, 0
    response = on_vote(self, request, standing, now_ms)
    repair.until = until
    return response


@MUTANTS.row(Repair, "ends_at", Seeds("S18", "D2", most=100, faults=ROT))
def repaired_too_early(_: object, self: Repair, durable_end_offset: int) -> bool:
    """A repair ends when half of what was lost is there."""
    if not self.is_on or 2 * durable_end_offset < self.until:
        return False
    self.until = 0
    return True


@MUTANTS.row(recovery, "_judge", Seeds("D2", "S13", "InvariantViolation", faults=ROT))
def rot_is_a_torn_tail(judge: Callable[..., Any], *arguments: object) -> object:
    """A rotten record is cut off like a torn tail."""
    return judge(*arguments)._replace(repair_until=0, damage="")


@MUTANTS.row(metadata_store, "begin_repair", Seeds("D2", "S18", "D1", "S6", "S8", most=100, faults=ROT))
def repair_not_remembered(begin: Callable[..., object], file_system: Any, directory: str, repair: object) -> object:
    """A restart forgets that the log is being repaired."""
    done = begin(file_system, directory, repair)
    file_system.remove(f"{directory}/repair")
    return done
