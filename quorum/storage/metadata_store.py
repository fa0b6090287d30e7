"""Everything in one metadata directory, opened together: log, snapshots, election state, generation, repair."""

from __future__ import annotations

from ..core.boot import BootState
from ..core.effects import ElectionState
from ..core.log_view import LogView
from .bootstrap import read_bootstrap
from .election_store import ElectionStateStore
from .file_system import FileSystem
from .identity import LogIdentity, partition_directory
from .metadata_log import CACHE_BYTES, PREALLOCATE_BYTES, SEGMENT_BYTES, MetadataLog
from .snapshot_store import SnapshotStore


class MetadataStore:
    """What `open` found. `notes`: one line for each thing that was mended; `damage`: why the node repairs itself, or None."""

    def __init__(
        self,
        log: MetadataLog,
        election_store: ElectionStateStore,
        election: ElectionState | None,
        snapshots: SnapshotStore,
        identity: LogIdentity,
        boot: BootState,
        notes: list[str],
        damage: str | None,
    ) -> None:
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
    ) -> MetadataStore:
        """Recover a metadata.log.dir (created if missing). Worker thread.

        `sole_voter`: the static configuration names this node as its only voter, so rot below what was committed can not be
        repaired from others (with dynamic voters the log itself says so). Raises LogCorrupt, WrongIdentity (both with the next
        step, and nothing was changed) and StorageFull.
        """
        identity = LogIdentity(cluster_id, directory_id)
        partition = partition_directory(directory)
        file_system.make_directory(partition)
        election_store = ElectionStateStore(file_system, directory, identity)
        election = election_store.load()
        identity = identity._replace(generation=election_store.generation)
        log = MetadataLog.open(
            file_system,
            directory,
            identity,
            segment_bytes=segment_bytes,
            preallocate_bytes=preallocate_bytes,
            cache_bytes=cache_bytes,
        )
        boot = BootState(bootstrap=read_bootstrap(file_system, directory, cluster_id))
        snapshots = SnapshotStore(file_system, partition, identity)
        return cls(log, election_store, election, snapshots, identity, boot, log.recovery_notes, None)

    def log_view(self) -> LogView:
        """The log as consensus sees it, from where it starts."""
        return LogView.from_headers(self.log.batches(), self.log.start, start_crc=self.log.start_crc)

    def close(self) -> None:
        """Give up the files; flush first what must survive."""
        self.log.close()
