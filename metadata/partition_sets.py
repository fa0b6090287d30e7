"""Persistent sets of partitions: topic id → the numbers of its partitions as bits of one integer.

The set of a broker or a directory is large and dense: a broker holds a good part of each topic. As bits a set takes a few
bytes where a map of keys takes a hundred per partition. A topic costs one update however many of its partitions change, and
members come out in order. A topic's bits are copied when they change; a topic with 100,000 partitions has 12 KiB of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

import immutables

from kraftlab.common.uuids import Uuid

from .maps import written

K = TypeVar("K")

PartitionSet = immutables.Map[Uuid, int]
"""Topic id → bits. There are no topics without bits, so equal sets are equal maps."""

EMPTY_SET: PartitionSet = immutables.Map()

PARTITIONS_PER_TOPIC_MAX = 1 << 24
"""Partition numbers are below this limit, which bounds the size of a set."""

_FEW = 8
_BITS_OF_BYTE = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


def bits_of(numbers: Sequence[int]) -> int:
    """Integer with these bits set. The numbers are not negative."""
    if len(numbers) <= _FEW:
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return bits
    content = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        content[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(content, "little")


def numbers_of(bits: int) -> list[int]:
    """Numbers of the set bits, ascending."""
    content = bits.to_bytes((bits.bit_length() + 7) >> 3, "little")
    return [(place << 3) + bit for place, byte in enumerate(content) if byte for bit in _BITS_OF_BYTE[byte]]


def members(partitions: PartitionSet) -> list[tuple[Uuid, int]]:
    """(topic id, partition number) of each member, sorted."""
    return list(
        chain.from_iterable([(topic_id, number) for number in numbers_of(bits)] for topic_id, bits in sorted(partitions.items()))
    )


def size(partitions: PartitionSet) -> int:
    """Number of members. The cost is that of the topics."""
    return sum(bits.bit_count() for bits in partitions.values())


class SetChanges:
    """Joins and leaves of a set, topic by topic. The last change of a partition counts."""

    __slots__ = ("_base", "_changed")

    def __init__(self, base: PartitionSet) -> None:
        self._base = base
        self._changed: dict[Uuid, int] = {}

    def replace(self, topic_id: Uuid, left: Sequence[int], joined: Sequence[int]) -> None:
        """Remove `left` from the set and add `joined`, all partitions of one topic."""
        if left or joined:
            bits = self._changed.get(topic_id)
            if bits is None:
                bits = self._base.get(topic_id, 0)
            if left:
                bits &= ~bits_of(left)
            self._changed[topic_id] = bits | bits_of(joined) if joined else bits

    def finish(self) -> PartitionSet:
        """Return the changed set; the same object if nothing differs."""
        base = self._base
        return written(
            base, {topic_id: bits or None for topic_id, bits in self._changed.items() if bits != base.get(topic_id, 0)}
        )


class FamilyChanges(dict[K, SetChanges]):
    """Changes of a family of sets, one per broker or directory: `changes[key]` are those of the key's set."""

    def __init__(self, base: immutables.Map[K, PartitionSet]) -> None:
        super().__init__()
        self._base = base

    def __missing__(self, key: K) -> SetChanges:
        made = self[key] = SetChanges(self._base.get(key, EMPTY_SET))
        return made

    def replace(self, topic_id: Uuid, left: Mapping[K, Sequence[int]], joined: Mapping[K, Sequence[int]]) -> None:
        """Apply `SetChanges.replace` to the sets of these keys."""
        for key, numbers in left.items():
            self[key].replace(topic_id, numbers, ())
        for key, numbers in joined.items():
            self[key].replace(topic_id, (), numbers)

    def finish(self) -> immutables.Map[K, PartitionSet]:
        """Return the changed family, without empty sets."""
        base = self._base
        finished = {key: changes.finish() for key, changes in self.items()}
        return written(base, {key: after or None for key, after in finished.items() if after is not base.get(key, EMPTY_SET)})
