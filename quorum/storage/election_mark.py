"""The mark that a controller has taken part in elections: `has-elected`, beside the partition directory in metadata.log.dir.

`quorum-state` and the log are lost together if their directory is: a controller would then start as if it were new, under a
directory id that is a voter's. It could vote a second time in an epoch, and its empty log could help to elect a leader that lacks
committed records. The mark is written once `quorum-state` is there and names the directory id, so a directory that was formatted
again begins without it. A mark without `quorum-state` is refused. Between the first start and the mark, which follows the
registration, a loss is not noticed.
"""

from __future__ import annotations

from contextlib import closing

import msgspec

from .checked_file import read_checked, replace_checked
from .election_store import FILE_NAME as QUORUM_STATE
from .errors import LogCorrupt
from .file_system import FileSystem
from .identity import partition_directory

FILE_NAME = "has-elected"


class _Record(msgspec.Struct, frozen=True):
    data_version: int
    directory_id: bytes


_decode = msgspec.json.Decoder(_Record).decode
_encode = msgspec.json.Encoder().encode


def check_votes_are_kept(file_system: FileSystem, directory: str, directory_id: bytes) -> None:
    """LogCorrupt if this controller has taken part in elections and its election state is gone."""
    if not _is_marked(file_system, directory, directory_id) or _has_state(file_system, directory):
        return
    raise LogCorrupt(
        f"{partition_directory(directory)}/{QUORUM_STATE} is missing, and this controller has taken part in elections: a node "
        "that forgot its vote could vote twice. Nothing was changed. If the other controllers have a leader, move this metadata "
        "directory aside and format it again with 'kraftlab storage format' (--no-initial-controllers); otherwise restore the "
        "directory from a backup."
    )


def mark_elections(file_system: FileSystem, directory: str, directory_id: bytes) -> None:
    """Write the mark, unless it is there or there is no election state yet. StorageError."""
    if _has_state(file_system, directory) and not _is_marked(file_system, directory, directory_id):
        replace_checked(file_system, directory, FILE_NAME, _encode(_Record(0, directory_id)))


def _is_marked(file_system: FileSystem, directory: str, directory_id: bytes) -> bool:
    """Return True for a mark of this directory id. A damaged one does not count: `quorum-state` decides alone."""
    try:
        line = read_checked(file_system, f"{directory}/{FILE_NAME}")
        return line is not None and _decode(line).directory_id == directory_id
    except (msgspec.MsgspecError, ValueError):
        return False


def _has_state(file_system: FileSystem, directory: str) -> bool:
    try:
        with closing(file_system.open(f"{partition_directory(directory)}/{QUORUM_STATE}")):
            return True
    except FileNotFoundError:
        return False
