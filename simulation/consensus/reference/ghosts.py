"""What only an onlooker knows: every batch that was ever written, who led which epoch, what is committed, what was sent.

A batch is a node of a tree: its parent is the batch before it. A log is its last batch, and with it the whole path to the root,
so that to cut or to append makes no copy, and logs are compared by walking up. The chain of crcs makes a batch's end and crc its
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.quorum.core.batch import NO_PREVIOUS_CRC, BatchHeader, ForcedStandalone, KRaftVoters
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.types import ReplicaKey, VoterSet


class Config(NamedTuple):
    """Who votes, by the record at `offset`, and who did before. `offset` -1: no record, the set the node was configured with."""

    voters: VoterSet
    offset: int
    previous: VoterSet | None


class Entry:
    """One batch and all before it. `config` None: no batch up to here names voters. The root stands for the empty log."""

    __slots__ = ("config", "crc", "end", "epoch", "parent")

    def __init__(self, end: int, epoch: int, crc: int, parent: Entry | None, config: Config | None) -> None:
        self.end = end
        self.epoch = epoch
        self.crc = crc
        self.parent = parent
        self.config = config

    def path(self) -> Iterator[Entry]:
        """This batch, the one before it, and so on up to the root."""
        entry: Entry | None = self
        while entry is not None:
            yield entry
            entry = entry.parent

    def at(self, offset: int) -> Entry | None:
        """The batch of this log that ends at `offset`; None if none does."""
        found = self.cut(offset)
        return found if found.end == offset else None

    def cut(self, offset: int) -> Entry:
        """This log without the batches that end above `offset`."""
        entry = self
        while entry.end > offset and entry.parent is not None:
            entry = entry.parent
        return entry

    def holds(self, other: Entry) -> bool:
        """Whether `other` is a prefix of this log."""
        return self.cut(other.end) is other

    def shared_with(self, other: Entry) -> Entry:
        """The longest common prefix."""
        one, two = self, other
        while one is not two:
            if one.end >= two.end and one.parent is not None:
                one = one.parent
            elif two.parent is not None:
                two = two.parent
        return one

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of this log that is at most `epoch`, and where it ends: (end, epoch)."""
        return next((entry.end, entry.epoch) for entry in self.path() if entry.epoch <= epoch)

    def __repr__(self) -> str:
        return f"log[..{self.end}@{self.epoch}]"


class Sent(NamedTuple):
    """A message, who sent it, and the sender's log: of a request what was on the disk when it left, of an answer all there was
    when it was made. The message is kept: its identity is its name.
    """

    message: object
    sender: ReplicaKey
    log: Entry


class Ghosts:
    """See the module's docstring. Grows with the run."""

    def __init__(self) -> None:
        self.root = Entry(0, 0, NO_PREVIOUS_CRC, None, None)
        self.committed = self.root
        """The longest log that any leader has called committed."""
        self._committed_in: dict[int, Entry] = {}
        """The longest one that the leader of each epoch has."""
        self.leaders: dict[int, int] = {}
        """Who has begun to lead which epoch."""
        self.epochs = {0}
        """Every epoch that somebody has opened."""
        self._entries = {(0, NO_PREVIOUS_CRC): self.root}
        self._sent: dict[int, Sent] = {}

    # Batches

    def find(self, end: int, crc: int) -> Entry | None:
        """The batch of that name, if anybody ever wrote it."""
        return self._entries.get((end, crc))

    @staticmethod
    def entry(header: BatchHeader, data: bytes, parent: Entry, base: VoterSet) -> Entry:
        """The batch that a leader, whose own configuration is `base`, makes behind `parent`; `data` is all of its bytes."""
        config = parent.config
        if header.is_control:
            records = control_of([header], data)
            for offset, record in records:
                if isinstance(record, KRaftVoters):
                    config = Config(record.voters, offset, config.voters if config is not None else base)
        return Entry(header.end_offset, header.epoch, header.crc, parent, config)

    def written(self, entry: Entry) -> Entry:
        """It is there from now on."""
        self._entries[entry.end, entry.crc] = entry
        return entry

    @staticmethod
    def is_forced(header: BatchHeader, data: bytes) -> bool:
        """Whether an operator who has given up a majority wrote this batch."""
        return header.is_control and any(isinstance(record, ForcedStandalone) for _, record in control_of([header], data))

    # What is committed

    def commits(self, epoch: int, entry: Entry) -> None:
        """The leader of `epoch` calls `entry` committed."""
        self._committed_in[epoch] = entry
        if entry.end > self.committed.end:
            self.committed = entry

    def committed_before(self, epoch: int) -> Entry:
        """What leaders of earlier epochs have called committed; one of a later epoch may be ahead of who is elected late."""
        earlier = (entry for other, entry in self._committed_in.items() if other < epoch)
        return max(earlier, key=lambda entry: entry.end, default=self.root)

    # Messages

    def sent(self, message: object, sender: ReplicaKey, log: Entry) -> None:
        self._sent[id(message)] = Sent(message, sender, log)

    def origin(self, message: object) -> Sent | None:
        """Who sent it; None if nobody did."""
        return self._sent.get(id(message))
