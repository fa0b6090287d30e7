"""Forcing a lost majority: one survivor becomes the only voter of a new generation.

`force_standalone` makes the node of one stopped controller the only voter, whatever data the others had. It keeps its log, adds
one segment of the next generation with one control batch in the next epoch (the leader, the voter set with this node alone, a
record of what was given up), and then writes the generation to `quorum-state`. The segment gets its name when all of it is
durable. So a crash leaves nothing of it, or all of it beside an older `quorum-state`: then the node refuses to start, and forcing
again finishes it.

Nodes of the old quorum are in a lower generation, and their peers refuse them. Not checked here: that the majority is really
lost. The operator must know.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core import batch
from ..core.batch import ControlRecord, ForcedStandalone, KRaftVersion, KRaftVoters, LeaderChange
from ..core.effects import ElectionState
from ..core.types import Voter, VoterSet
from .bootstrap import read_bootstrap
from .checked_file import replacing
from .election_store import ElectionStateStore
from .errors import LogCorrupt
from .file_system import FileSystem
from .identity import LogIdentity, partition_directory
from .metadata_store import MetadataStore
from .recovery import Findings, analyse
from .repair import read_repair
from .segment import SegmentHeader, segment_name

_ANY_GENERATION = 0xFFFFFFFF


class ForcedReport(NamedTuple):
    """The data that forcing keeps and gives up, before it (plan) or after it.

    Everything in `[0, high_watermark)` was certainly committed and is kept. `[high_watermark, end_offset)` is kept and becomes
    committed, even if it was not. Everything that the old quorum committed from `end_offset` on is lost. `epoch` and `generation`
    are the new ones. `previous_voters` are given up (empty: unknown). `was_interrupted`: an earlier run is only finished.
    """

    generation: int
    epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int
    last_append_time_ms: int
    previous_voters: VoterSet
    was_interrupted: bool


def plan_standalone(
    file_system: FileSystem, directory: str, identity: LogIdentity, static_voters: VoterSet | None = None
) -> ForcedReport:
    """Return the plan of `force_standalone` for a stopped controller's metadata.log.dir; change nothing. Worker thread.

    `static_voters`: those of the configuration, for a log without a voter set. LogCorrupt if this node lacks committed data
    itself (another survivor is the better choice), or has no log at all; WrongIdentity.
    """
    partition = partition_directory(directory)
    store = ElectionStateStore(file_system, directory, identity)
    election = store.load() or ElectionState(0, -1, None)
    repair = read_repair(file_system, partition, identity)
    found = analyse(file_system, partition, identity._replace(generation=_ANY_GENERATION))
    try:
        is_whole = repair is None or (not repair.pending and found.walk.batches.end_offset >= repair.repair_until)
        damage = found.damage or (repair.reason if repair and not is_whole else "")
        if damage:
            raise LogCorrupt(
                f"{damage} A node that lacks committed data cannot found a quorum; nothing was changed. Force another "
                "survivor; if there is none, restore this directory from a backup first."
            )
        generation = max((image.header.identity.generation for image in found.images if image.header), default=0)
        if generation > store.generation:
            return _interrupted(found, generation, partition)
        voters = found.latest_voters() or _voters_of(read_bootstrap(file_system, directory, identity.cluster_id))
        index = found.walk.batches
        if index.end_offset == 0:
            raise LogCorrupt(f"{partition} holds no log: nothing could be kept. Name the metadata.log.dir of a survivor.")
        return ForcedReport(
            generation=store.generation + 1,
            epoch=max(election.epoch, index.last_epoch) + 1,
            start_offset=index.start_offset,
            end_offset=index.end_offset,
            high_watermark=found.committed,
            last_append_time_ms=_last_time_ms(found),
            previous_voters=voters or static_voters or VoterSet(()),
            was_interrupted=False,
        )
    finally:
        found.close()


def _last_time_ms(found: Findings) -> int:
    index = found.walk.batches
    if len(index):
        return index.header(len(index) - 1).append_time_ms
    return found.snapshots[-1].append_time_ms if found.snapshots else 0


def _voters_of(control: tuple[ControlRecord, ...]) -> VoterSet | None:
    return next((record.voters for record in control if isinstance(record, KRaftVoters)), None)


def _interrupted(found: Findings, generation: int, partition: str) -> ForcedReport:
    forced = [record for _, record in found.walk.control if isinstance(record, ForcedStandalone)]
    if not forced or forced[-1].generation != generation:
        raise LogCorrupt(
            f"{partition} holds segments of generation {generation}, but no record of forcing it: files of two directories were "
            "mixed up. Nothing was changed; restore the directory from a backup."
        )
    record, index = forced[-1], found.walk.batches
    return ForcedReport(
        generation=generation,
        epoch=index.last_epoch,
        start_offset=index.start_offset,
        end_offset=record.end_offset,
        high_watermark=record.high_watermark,
        last_append_time_ms=record.time_ms,
        previous_voters=record.previous_voters,
        was_interrupted=True,
    )


def force_standalone(
    file_system: FileSystem,
    directory: str,
    identity: LogIdentity,
    voter: Voter,
    now_ms: int,
    static_voters: VoterSet | None = None,
) -> ForcedReport:
    """Make `voter`, the owner of this directory, the only voter of a new generation. The node must be stopped. Worker thread.

    Errors as in `plan_standalone`, and StorageFull; after any of them, and after a crash, it can be run again.
    """
    report = plan_standalone(file_system, directory, identity, static_voters)
    if not report.was_interrupted:
        MetadataStore.open(file_system, directory, identity.cluster_id, identity.directory_id).close()
        _write_segment(file_system, partition_directory(directory), identity, voter, now_ms, report)
    store = ElectionStateStore(file_system, directory, identity)
    store.load()
    store.begin_generation(report.generation, ElectionState(report.epoch, -1, None))
    return report


def _write_segment(
    file_system: FileSystem, partition: str, identity: LogIdentity, voter: Voter, now_ms: int, report: ForcedReport
) -> None:
    found = analyse(file_system, partition, identity._replace(generation=_ANY_GENERATION))
    index = found.walk.batches
    found.close()
    node_id, end = voter.key.node_id, index.end_offset
    records: list[ControlRecord] = [
        LeaderChange(0, node_id, (node_id,), (node_id,)),
        KRaftVersion(0, 1),
        KRaftVoters(0, VoterSet((voter,))),
        ForcedStandalone(0, report.generation, voter.key, report.previous_voters, report.high_watermark, end, now_ms),
    ]
    data, _ = batch.encode(
        batch.encode_control(records),
        base_offset=end,
        epoch=report.epoch,
        record_count=len(records),
        append_time_ms=now_ms,
        high_watermark=report.high_watermark,
        previous_crc=index.last_crc,
        attributes=batch.CONTROL,
    )
    header = SegmentHeader(identity._replace(generation=report.generation), end, index.last_epoch, index.last_crc)
    with replacing(file_system, partition, segment_name(end)) as file:
        file.pwrite(header.encode() + data, 0)
