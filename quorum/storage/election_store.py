"""The election state on disk: `quorum-state`, one record that is replaced whole (checked_file.py).

It also holds the generation, with which the one in segments and frames is compared. `load` makes its result durable first: after
a mere kill the new name may be in the page cache alone, and a node must not act on a vote that the next power cut takes back.
`sequence` counts the records written in this directory's life.
"""

from __future__ import annotations

import msgspec

from kraftlab.common.replica_key import ReplicaKey

from ..core.effects import ElectionState
from .checked_file import read_checked, replace_checked
from .errors import LogCorrupt
from .file_system import FileSystem
from .identity import LogIdentity, partition_directory

FILE_NAME = "quorum-state"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data_version: int
    sequence: int
    cluster_id: str
    directory_id: bytes
    generation: int
    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: bytes


_decoder = msgspec.json.Decoder(_Record)
_encoder = msgspec.json.Encoder()


class ElectionStateStore:
    """Loads and replaces the election state of one metadata directory. One writer at a time; worker threads."""

    def __init__(self, file_system: FileSystem, directory: str, identity: LogIdentity) -> None:
        self._file_system = file_system
        self._directory = partition_directory(directory)
        self._path = f"{self._directory}/{FILE_NAME}"
        self._identity = identity
        self._sequence = 0

    @property
    def generation(self) -> int:
        """The generation that `store` writes; after `load`, the one found on disk."""
        return self._identity.generation

    def load(self) -> ElectionState | None:
        """Return the stored state; None if the directory never had one. LogCorrupt or WrongIdentity if it is unusable."""
        try:
            line = read_checked(self._file_system, self._path)
            if line is None:
                return None
            record = _decoder.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise self._corrupt(str(error)) from error
        if record.data_version != 0:
            raise self._corrupt(f"data_version is {record.data_version}, this node reads 0")
        self._identity = self._identity._replace(generation=record.generation)
        self._identity.check(LogIdentity(record.cluster_id, record.directory_id, record.generation), self._path)
        self._file_system.sync_directory(self._directory)
        self._sequence = record.sequence
        voted = ReplicaKey(record.voted_id, record.voted_directory_id) if record.voted_id >= 0 else None
        return ElectionState(record.epoch, record.leader_id, voted)

    def _corrupt(self, reason: str) -> LogCorrupt:
        return LogCorrupt(
            f"{self._path} cannot be trusted ({reason}), and a node that forgot its vote could vote twice. Nothing was changed. "
            "If the other controllers have a leader, move this metadata directory aside and format it anew with "
            "'kraftlab storage format'; otherwise restore the file from a backup."
        )

    def begin_generation(self, generation: int, state: ElectionState) -> None:
        """Replace the stored state by the first one of a new generation."""
        self._identity = self._identity._replace(generation=generation)
        self.store(state)

    def store(self, state: ElectionState) -> None:
        """Replace the stored state, durably. StorageFull leaves the old record in place; FsyncFailed is final."""
        voted = state.voted_key
        record = _Record(
            data_version=0,
            sequence=self._sequence + 1,
            cluster_id=self._identity.cluster_id,
            directory_id=self._identity.directory_id,
            generation=self._identity.generation,
            epoch=state.epoch,
            leader_id=state.leader_id,
            voted_id=voted.node_id if voted else -1,
            voted_directory_id=voted.directory_id if voted else bytes(16),
        )
        self._file_system.make_directory(self._directory)
        replace_checked(self._file_system, self._directory, FILE_NAME, _encoder.encode(record))
        self._sequence += 1
