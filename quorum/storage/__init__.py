"""The disk of a quorum member: log, snapshots and election state over a small FileSystem protocol. See metadata_store.py."""

from .election_store import ElectionStateStore
from .errors import DiskFailed, FsyncFailed, LogCorrupt, StorageError, StorageFull, WrongIdentity
from .file_system import File, FileSystem, RealFileSystem
from .identity import LogIdentity
from .metadata_log import MetadataLog
from .metadata_store import MetadataStore
from .snapshot_file import SnapshotInvalid, SnapshotSummary
from .snapshot_store import SnapshotInfo, SnapshotReader, SnapshotStore, SnapshotWriter

__all__ = [
    "DiskFailed",
    "ElectionStateStore",
    "File",
    "FileSystem",
    "FsyncFailed",
    "LogCorrupt",
    "LogIdentity",
    "MetadataLog",
    "MetadataStore",
    "RealFileSystem",
    "SnapshotInfo",
    "SnapshotInvalid",
    "SnapshotReader",
    "SnapshotStore",
    "SnapshotSummary",
    "SnapshotWriter",
    "StorageError",
    "StorageFull",
    "WrongIdentity",
]
