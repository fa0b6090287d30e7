"""Bugs of snapshots and of repair: what they stand for, what takes whose place, and what a damaged log may claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlab.checking.mutant import Mutant
from kraftlab.quorum.core.elections import Elections
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.membership import Membership
from kraftlab.quorum.core.repair import Repair
from kraftlab.quorum.core.snapshots import SnapshotContext, Snapshots
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage import metadata_store, recovery
from kraftlab.quorum.storage.metadata_log import MetadataLog
from kraftlab.quorum.storage.snapshot_file import SnapshotDecoder, SnapshotSummary
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

ROT = ("take-snapshot", "rot", "kill", "power-cut", "crash-in-recovery", "resign", "partition", "replace-disk")


def _named_by_the_last_epoch(context: Callable[..., SnapshotContext | None]) -> Callable[..., SnapshotContext | None]:
    def mutated(self: Snapshots, *arguments: Any) -> SnapshotContext | None:
        found = context(self, *arguments)
        return found and found._replace(id=OffsetAndEpoch(found.id.offset, self._log.view.last_epoch))

    return mutated


def _newest_voters_in_snapshot(_original: object) -> Callable[..., Any]:
    def mutated(self: Snapshots, offset: int) -> Any:
        return voters_at(self, self._log.view.end_offset)

    voters_at: Callable[..., Any] = _original  # type: ignore[assignment]
    return mutated


def _only_newer(lost: Callable[..., bool]) -> Callable[[Snapshots, OffsetAndEpoch], bool]:
    def mutated(self: Snapshots, snapshot: OffsetAndEpoch) -> bool:
        is_asked_for = lost(self, snapshot)
        self._lost = None
        return is_asked_for

    return mutated


def _never_missed(_original: object) -> Callable[[Snapshots, OffsetAndEpoch], bool]:
    def mutated(self: Snapshots, snapshot: OffsetAndEpoch) -> bool:
        return False

    return mutated


def _cleaned_too_far(clean: Callable[..., None]) -> Callable[[LocalLog, OffsetAndEpoch], None]:
    def mutated(self: LocalLog, start: OffsetAndEpoch) -> None:
        clean(self, self.view.position_at(self.high_watermark) or start)

    return mutated


def _not_raised_on_install(install: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: LocalLog, *arguments: Any) -> None:
        high_watermark = self.high_watermark
        install(self, *arguments)
        self.high_watermark = high_watermark
        self._out.pop()

    return mutated


def _voters_kept_on_install(_original: object) -> Callable[..., bool]:
    def mutated(self: Membership, control: object) -> bool:
        return False

    return mutated


def _digest_unchecked(_original: object) -> Callable[..., Any]:
    def mutated(file: Any, position: OffsetAndEpoch) -> Any:
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

    return mutated


def _chunk_at_the_end(_original: object) -> Callable[[SnapshotStore, OffsetAndEpoch, int, bytes], int]:
    def mutated(self: SnapshotStore, position: OffsetAndEpoch, start: int, data: bytes) -> int:
        file = self._part_file(position)
        size = file.size()
        file.pwrite(data, size)
        return size + len(data)

    return mutated


def _removed_with_the_rest(remove: Callable[..., None]) -> Callable[[SnapshotStore, OffsetAndEpoch], None]:
    def mutated(self: SnapshotStore, position: OffsetAndEpoch) -> None:
        with self._lock:
            self._remove([other for other in self._finished if other.offset <= position.offset])

    return mutated


def _segments_first(_original: object) -> Callable[[MetadataLog, OffsetAndEpoch], None]:
    """The old log goes before the snapshot has its name."""

    def mutated(self: MetadataLog, position: OffsetAndEpoch) -> None:
        removed, self._segments = self._segments, []
        self._unwanted += [segment.file.path for segment in removed]
        self._retire(removed)
        self._remove_unwanted()
        self._snapshots.adopt(position)
        self.durable_end_offset = position.offset

    return mutated


def _repairers_vote(on_vote: Callable[..., Any]) -> Callable[..., Any]:
    def mutated(self: Elections, request: Any, now_ms: int) -> Any:
        repair = self._quorum.repair
        until, repair.until = repair.until, 0
        response = on_vote(self, request, now_ms)
        repair.until = until
        return response

    return mutated


def _repaired_too_early(_original: object) -> Callable[[Repair, int], bool]:
    def mutated(self: Repair, durable_end_offset: int) -> bool:
        if not self.is_on or 2 * durable_end_offset < self.until:
            return False
        self.until = 0
        return True

    return mutated


def _rot_is_a_torn_tail(judge: Callable[..., Any]) -> Callable[..., Any]:
    def mutated(*arguments: Any) -> Any:
        return judge(*arguments)._replace(repair_until=0, damage="")

    return mutated


def _repair_unremembered(begin: Callable[..., Any]) -> Callable[..., Any]:
    def mutated(file_system: Any, directory: str, repair: Any) -> Any:
        done = begin(file_system, directory, repair)
        file_system.remove(f"{directory}/repair")
        return done

    return mutated


MUTANTS = (
    Mutant(
        "snapshot-named-by-the-last-epoch",
        "a snapshot's id has the log's last epoch, not that of the record before its end",
        Snapshots,
        "context",
        _named_by_the_last_epoch,
        rules=("S13",),
    ),
    Mutant(
        "snapshot-has-the-newest-voters",
        "a snapshot names the voters at the log's end, committed or not",
        Snapshots,
        "_voters_at",
        _newest_voters_in_snapshot,
        rules=("S13",),
        seeds_max=150,
        faults=("take-snapshot", "add-voter", "remove-voter", "transfer-leadership", "partition", "isolate", "slow-disk"),
    ),
    Mutant(
        "cleaned-above-the-snapshot",
        "the log is cleaned up to the high watermark, beyond the snapshot's end",
        LocalLog,
        "clean",
        _cleaned_too_far,
        rules=("S13", "InvariantViolation"),
    ),
    Mutant(
        "high-watermark-not-raised-on-install",
        "an installed snapshot does not raise the high watermark (KAFKA-9491)",
        LocalLog,
        "install",
        _not_raised_on_install,
        rules=("S13", "InvariantViolation", "S9", "L2"),
    ),
    Mutant(
        "snapshot-voters-ignored",
        "an installed snapshot's voters are ignored (ScyllaDB 9551)",
        Membership,
        "reset",
        _voters_kept_on_install,
        rules=("S13", "CorruptBatch", "S12", "S8", "L2"),
        faults=("take-snapshot", "add-voter", "remove-voter", "replace-disk", "isolate", "kill"),
    ),
    Mutant(
        "snapshot-not-checked",
        "a start takes the snapshots that it finds as they are",
        recovery,
        "read_summary",
        _digest_unchecked,
        rules=("LogCorrupt", "L1", "L2", "D2", "S13"),
        seeds_max=100,
        faults=ROT,
    ),
    Mutant(
        "rotten-snapshot-stays",
        "a snapshot that can not be read is not written again",
        Snapshots,
        "lost",
        _never_missed,
        rules=("L2",),
    ),
    Mutant(
        "rotten-snapshot-waits-for-news",
        "a snapshot that can not be read is replaced when there is a newer one, not before",
        Snapshots,
        "lost",
        _only_newer,
        rules=("L2",),
    ),
    Mutant(
        "chunk-at-the-end",
        "a piece of a snapshot is written behind what is there, wherever it belongs",
        SnapshotStore,
        "store_part",
        _chunk_at_the_end,
        rules=("D3",),
        seeds_max=150,
        faults=("take-snapshot", "resign", "pause", "isolate", "clog", "transfer-leadership"),
    ),
    Mutant(
        "snapshot-removed-with-the-rest",
        "cleaning removes the snapshot that the log starts at",
        SnapshotStore,
        "remove_below",
        _removed_with_the_rest,
        rules=("S13", "InvariantViolation", "LogCorrupt", "D1", "D2"),
    ),
    Mutant(
        "segments-removed-before-the-install",
        "the old log is removed before the snapshot has its name",
        MetadataLog,
        "_install",
        _segments_first,
        rules=("D1", "D2", "LogCorrupt"),
        faults=("take-snapshot", "crash-in-flush", "isolate", "replace-disk"),
    ),
    Mutant(
        "repairers-vote",
        "who repairs a damaged log votes",
        Elections,
        "on_vote",
        _repairers_vote,
        rules=("S18", "S6"),
        seeds_max=100,
        faults=ROT,
    ),
    Mutant(
        "repaired-too-early",
        "a repair ends when half of what was lost is there",
        Repair,
        "ends_at",
        _repaired_too_early,
        rules=("S18", "D2"),
        seeds_max=100,
        faults=ROT,
    ),
    Mutant(
        "rot-is-a-torn-tail",
        "what rots is cut off like a torn tail",
        recovery,
        "_judge",
        _rot_is_a_torn_tail,
        rules=("D2", "S13", "InvariantViolation"),
        faults=ROT,
    ),
    Mutant(
        "repair-not-remembered",
        "a restart forgets that the log is being repaired",
        metadata_store,
        "begin_repair",
        _repair_unremembered,
        rules=("D2", "S18", "D1", "S6", "S8"),
        seeds_max=100,
        faults=ROT,
    ),
)
