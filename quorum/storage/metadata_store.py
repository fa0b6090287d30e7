"""Everything in one metadata directory, opened together: log, snapshots, election state, generation, repair.

`open` is the only way in, and looks at all of it before it changes anything::

    found                                               result
    --------------------------------------------------  ------------------------------------------------------------
    `quorum-state`: another node's, or damaged          refused
    segments of a higher generation than quorum-state   refused: forcing the quorum was interrupted (standalone.py)
    `repair` with steps pending                         the steps are finished first
    `repair`, and the log reaches its offset            the repair has ended
    a chain from a snapshot (or 0) to the end           used; snapshots and segments that do not belong are removed
    a tail that was never acknowledged                  cut
    a finished snapshot that is not on the log's chain  the log starts there: the rest of an install is done
    an unusable snapshot that the log does not need     removed
    anything committed is missing                       set aside and repaired (repair.py); refused for the only voter
    the bootstrap checkpoint is damaged                 refused, unless the log has a voter set
    `.tmp`, `.part`, `.damaged` without `repair`        removed

The election state decides about the generation; without the file it is 0. Everything here blocks and belongs to a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.batch import KRaftVoters
from ..core.effects import ElectionState
from ..core.log_view import LogView
from ..core.raft_config import BootState
from ..core.types import VoterSet
from .bootstrap import read_bootstrap
from .checked_file import TEMPORARY
from .committed_mark import store_committed
from .election_store import ElectionStateStore
from .errors import DiskFailed, LogCorrupt
from .file_system import FileSystem
from .identity import LogIdentity, partition_directory
from .metadata_log import CACHE_BYTES, PREALLOCATE_BYTES, SEGMENT_BYTES, MetadataLog
from .recovery import NEXT_STEP, Findings, analyse, apply_findings
from .repair import Repair, begin_repair, continue_repair, end_repair, plan_repair, read_repair, remove_set_aside
from .snapshot_file import SnapshotInvalid
from .snapshot_store import PART, SnapshotStore

Rule = Callable[[Findings], Findings]
"""Another verdict on what was found: a rule of recovery that an experiment compares with this one. LogCorrupt: do not start."""


def own_rule(found: Findings) -> Findings:
    """Return the findings as they are: damage below a committed offset is repaired, a torn tail is cut."""
    return found


class MetadataStore:
    """The opened directory. `notes`: one line for each repair of `open`; `damage`: why the node repairs itself, or None."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        log: MetadataLog,
        election_store: ElectionStateStore,
        election: ElectionState | None,
        snapshots: SnapshotStore,
        identity: LogIdentity,
        boot: BootState,
        notes: list[str],
        damage: str | None,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self.log = log
        self.election_store = election_store
        self.election = election
        self.snapshots = snapshots
        self.identity = identity
        self.boot = boot
        self.notes = notes
        self.damage = damage

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        cluster_id: str,
        directory_id: bytes,
        *,
        sole_voter: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        preallocate_bytes: int = PREALLOCATE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        rule: Rule = own_rule,
    ) -> MetadataStore:
        """Recover a metadata.log.dir (created if missing).

        `sole_voter`: the static configuration names this node as its only voter, so lost committed data cannot be fetched from
        others (with dynamic voters the log itself says so). Only experiments set another `rule`. Raises LogCorrupt and
        WrongIdentity (both with the next step, and nothing was changed) and StorageFull (a repair needs room; nothing is lost).
        """
        partition = partition_directory(directory)
        file_system.make_directory(partition)
        file_system.sync_directory(directory)
        election_store = ElectionStateStore(file_system, directory, LogIdentity(cluster_id, directory_id))
        election = election_store.load()
        identity = LogIdentity(cluster_id, directory_id, election_store.generation)
        bootstrap = _Bootstrap(file_system, directory, cluster_id)
        found, repair = _settle(file_system, partition, identity, bootstrap, sole_voter, rule)
        recovered = apply_findings(file_system, partition, found)
        notes = recovered.notes
        if repair is not None and recovered.batches.end_offset >= repair.repair_until:
            end_repair(file_system, partition)
            notes.append(f"repaired: everything below offset {repair.repair_until} is here again")
            repair = None
        _tidy(file_system, partition, repair)
        snapshots = SnapshotStore(file_system, partition, identity, recovered.snapshots)
        log = MetadataLog(
            file_system,
            partition,
            identity,
            snapshots,
            recovered,
            segment_bytes=segment_bytes,
            preallocate_bytes=preallocate_bytes,
            cache_bytes=cache_bytes,
        )
        boot = BootState(
            control=found.control(),
            bootstrap=bootstrap.control,
            snapshots=snapshots.ids(),
            repair_until=repair.repair_until if repair else 0,
        )
        damage = repair.reason if repair else None
        return cls(file_system, partition, log, election_store, election, snapshots, identity, boot, notes, damage)

    def log_view(self) -> LogView:
        """Return the log as consensus sees it, from its start."""
        return LogView.from_headers(self.log.batches(), self.log.start, start_crc=self.log.start_crc)

    def end_repair(self) -> None:
        """Forget the repair and remove the files that were set aside.

        Worker thread, on RepairEnded. StorageFull: try again later.
        """
        end_repair(self._file_system, self._directory)
        self.damage = None

    def note_committed(self, offset: int) -> None:
        """Store the committed offset for readers of the directory. Worker thread. StorageError."""
        store_committed(self._file_system, self._directory, offset)

    def close(self) -> None:
        """Close the files. Flush first to keep staged changes."""
        self.log.close()
        self.snapshots.close()


class _Bootstrap:
    """The bootstrap checkpoint's records, or the reason why they cannot be read."""

    def __init__(self, file_system: FileSystem, directory: str, cluster_id: str) -> None:
        self.fault = ""
        try:
            self.control = read_bootstrap(file_system, directory, cluster_id)
        except (SnapshotInvalid, DiskFailed) as error:
            self.control, self.fault = (), str(error).rstrip(".")

    def voters(self) -> VoterSet | None:
        return next((record.voters for record in self.control if isinstance(record, KRaftVoters)), None)


def _settle(
    file_system: FileSystem, partition: str, identity: LogIdentity, bootstrap: _Bootstrap, sole_voter: bool, rule: Rule
) -> tuple[Findings, Repair | None]:
    """Return findings without damage, after setting it aside, and the current repair."""
    repair = read_repair(file_system, partition, identity)
    if repair is not None:
        repair = continue_repair(file_system, partition, repair)
    planned: list[tuple[str, int]] | None = None
    while True:
        found = analyse(file_system, partition, identity)
        try:
            found = rule(found)
            _check(found, repair, identity, bootstrap, sole_voter)
            if not found.repair_until:
                return found, repair
            repair = plan_repair(file_system.names(partition), found, identity, repair)
            last, planned = planned, [(step.source, step.position) for step in repair.pending]
            if planned == last:
                raise LogCorrupt(
                    f"{found.damage}. It was set aside, and is still there: {partition} is on a file system that ignores renames "
                    "or writes. Copy the directory to another disk, and start from there."
                )
        except Exception:
            found.close()
            raise
        found.close()
        repair = begin_repair(file_system, partition, repair)


def _check(found: Findings, repair: Repair | None, identity: LogIdentity, bootstrap: _Bootstrap, sole_voter: bool) -> None:
    """Raise LogCorrupt for damage that must not be touched."""
    has_voters = any(isinstance(record, KRaftVoters) for _, record in found.control())
    if bootstrap.fault and not has_voters:
        raise LogCorrupt(
            f"{bootstrap.fault}, and the log has no voter set yet, so this node does not know the voters. {NEXT_STEP}"
        )
    if not found.repair_until and (repair is None or found.walk.batches.end_offset >= repair.repair_until):
        return
    voters = found.latest_voters() or bootstrap.voters()
    is_alone = [voter.key.directory_id for voter in voters.voters] == [identity.directory_id] if voters else sole_voter
    has_others = repair is not None and voters is not None  # the voter set that showed them may be set aside by now
    if is_alone and not has_others:
        reason = found.damage or (repair.reason if repair else "")
        raise LogCorrupt(f"{reason} This node is the only voter, so no other has the data. {NEXT_STEP}")


def _tidy(file_system: FileSystem, partition: str, repair: Repair | None) -> None:
    """Remove the leftovers of a crash."""
    leftovers = [name for name in file_system.names(partition) if name.endswith((TEMPORARY, PART))]
    for name in leftovers:
        file_system.remove(f"{partition}/{name}")
    if leftovers:
        file_system.sync_directory(partition)
    if repair is None:
        remove_set_aside(file_system, partition)
