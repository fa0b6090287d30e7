"""Errors of a disk, by the possible reaction.

StorageFull may pass: nothing was lost, and the same flush may be tried again. DiskFailed and FsyncFailed are final for this
process: after a failed fsync the kernel may have dropped the dirty pages and report success the next time, so the process ends,
and the next one reads what is really on disk. LogCorrupt and WrongIdentity stop a start before anything is modified.
"""

from __future__ import annotations


class StorageError(Exception):
    """Any failure of a quorum's files."""


class StorageFull(StorageError):
    """No space, no quota or a read-only file system. Nothing was lost; the write may be tried again later."""


class DiskFailed(StorageError):
    """A read or write failed for good. The process must end; no descriptor of this file may be used again."""


class FsyncFailed(DiskFailed):
    """An fsync failed: data written since the last one may be gone. Never retried; the process must end."""


class LogCorrupt(StorageError):
    """Committed data is damaged. Names file, position, offset and the next step; nothing on disk was modified."""


class WrongIdentity(StorageError):
    """The directory belongs to another node, cluster or generation; nothing on disk was modified."""


class DirectoryInUse(StorageError):
    """Another process runs on the directory; nothing was read or modified."""
