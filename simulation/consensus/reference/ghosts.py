"""Facts that no single node knows: every batch ever written, the leader of each epoch, the committed log, and sent messages.

A batch is a node of a tree, and its parent is the batch before it. A log is represented by its last batch, with the path to the
root. So truncations and appends make no copy, and logs are compared by walking up. Since crcs are chained, the end and crc of a
batch are its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import NO_PREVIOUS_CRC, BatchHeader, ForcedStandalone, KRaftVoters
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.types import VoterSet


class Config(NamedTuple):
    """The voters by the record at `offset`, and the voters before. `offset` -1: the node's configuration, without a record."""

    voters: VoterSet
    offset: int
    previous: VoterSet | None


class Entry:
    """One batch and all batches before it. `config` None: no batch up to this one names voters. The root is the empty log."""

    __slots__ = ("config", "crc", "end", "epoch", "parent")

    def __init__(self, end: int, epoch: int, crc: int, parent: Entry | None, config: Config | None) -> None:
        self.end = end
        self.epoch = epoch
        self.crc = crc
        self.parent = parent
        self.config = config

    def path(self) -> Iterator[Entry]:
        """Yield this batch, the batch before it, and so on up to the root."""
        entry: Entry | None = self
        while entry is not None:
            yield entry
            entry = entry.parent

    def at(self, offset: int) -> Entry | None:
        """Return the batch of this log that ends at `offset`; None if no batch does."""
        found = self.cut(offset)
        return found if found.end == offset else None

    def cut(self, offset: int) -> Entry:
        """Return this log without the batches that end above `offset`."""
        entry = self
        while entry.end > offset and entry.parent is not None:
            entry = entry.parent
        return entry

    def holds(self, other: Entry) -> bool:
        """Return True if `other` is a prefix of this log."""
        return self.cut(other.end) is other

    def shared_with(self, other: Entry) -> Entry:
        """Return the longest common prefix."""
        one, two = self, other
        while one is not two:
            if one.end >= two.end and one.parent is not None:
                one = one.parent
            elif two.parent is not None:
                two = two.parent
        return one

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return end and number of the largest epoch of this log that is at most `epoch`: (end, epoch)."""
        return next((entry.end, entry.epoch) for entry in self.path() if entry.epoch <= epoch)

    def __repr__(self) -> str:
        return f"log[..{self.end}@{self.epoch}]"


class SentMessage(NamedTuple):
    """A message, its sender, and the sender's log: the durable log when a request left, the whole log when an answer was made.
    The message is kept, since it is identified by its `id`.
    """

    message: object
    sender: ReplicaKey
    log: Entry


class Ghosts:
    """The facts of one run; see the module's docstring."""

    def __init__(self) -> None:
        self.root = Entry(0, 0, NO_PREVIOUS_CRC, None, None)
        self.committed = self.root
        """The longest log that a leader has reported committed."""
        self._committed_in: dict[int, Entry] = {}
        """By epoch, the longest log that its leader has reported committed."""
        self.leaders: dict[int, int] = {}
        """Leaders by epoch."""
        self.epochs = {0}
        """Every epoch that a replica has opened."""
        self._entries = {(0, NO_PREVIOUS_CRC): self.root}
        self._sent: dict[int, SentMessage] = {}

    # Batches

    def find(self, end: int, crc: int) -> Entry | None:
        """Return the batch with that end and crc, None if it was never written."""
        return self._entries.get((end, crc))

    @staticmethod
    def entry(header: BatchHeader, data: bytes, parent: Entry, base: VoterSet) -> Entry:
        """Return the batch that a leader with the configuration `base` appends to `parent`; `data` are its bytes."""
        config = parent.config
        if header.is_control:
            records = control_of([header], data)
            for offset, record in records:
                if isinstance(record, KRaftVoters):
                    config = Config(record.voters, offset, config.voters if config is not None else base)
        return Entry(header.end_offset, header.epoch, header.crc, parent, config)

    def written(self, entry: Entry) -> Entry:
        """Add a batch to the tree."""
        self._entries[entry.end, entry.crc] = entry
        return entry

    @staticmethod
    def is_forced(header: BatchHeader, data: bytes) -> bool:
        """Return True if this batch was written by an operator who has given up a majority (ForcedStandalone)."""
        return header.is_control and any(isinstance(record, ForcedStandalone) for _, record in control_of([header], data))

    # Commits

    def commits(self, epoch: int, entry: Entry) -> None:
        """Note that the leader of `epoch` reports `entry` committed."""
        self._committed_in[epoch] = entry
        if entry.end > self.committed.end:
            self.committed = entry

    def committed_before(self, epoch: int) -> Entry:
        """Return the longest log that leaders of earlier epochs have committed. A leader that is elected late can lack records
        that a leader of a later epoch has committed.
        """
        earlier = (entry for other, entry in self._committed_in.items() if other < epoch)
        return max(earlier, key=lambda entry: entry.end, default=self.root)

    # Messages

    def sent(self, message: object, sender: ReplicaKey, log: Entry) -> None:
        self._sent[id(message)] = SentMessage(message, sender, log)

    def origin(self, message: object) -> SentMessage | None:
        """Return the record of a sent message; None if it was never sent."""
        return self._sent.get(id(message))
