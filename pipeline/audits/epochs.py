"""The epochs of leaders, and the places where the logs of controllers differ (KIP-595).

Theory. An epoch has one leader, which writes a LeaderChange as its first record. Logs that agree on the epoch of an offset agree
on everything before it (Log Matching). So an epoch with two leaders, and different bytes at one offset in one epoch, are
impossible in a correct quorum. Different bytes in different epochs are allowed for a while at the end of a log: batches that a
deposed leader could not commit, which are truncated when the controller follows the next leader. A log that did follow a later
leader must have none.

Batches are compared by base offset, last offset, epoch and CRC. Replication copies batches unchanged, so equal logs have equal
batches. Batches of snapshots are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from ..framing import Frame
from ..kraft_log.batches import ControlRecord
from ..sources.formats import format_named

LOG_MATCHING, TAIL = "log_matching", "tail"
LEADER_CHANGE = "LeaderChange"


class EpochStart(NamedTuple):
    """The stretch of one epoch in one controller's log. `leader` is None if the beginning of the epoch is missing. Offsets are
    [start, end).
    """

    controller_id: int
    epoch: int
    leader: int | None
    start_offset: int
    end_offset: int
    first_ms: int
    last_ms: int


class LeaderEpoch(NamedTuple):
    """A row of `gold.leader_epochs`. `ms` is the time from the first batch to the first batch of the next epoch, or, for the last
    epoch, to its last batch.
    """

    epoch: int
    leader: int | None
    start_offset: int
    end_offset: int
    ms: int


class LogBatch(NamedTuple):
    """A batch in a controller's log. `last_epoch` is the highest epoch of that log."""

    controller_id: int
    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    last_epoch: int


class Divergence(NamedTuple):
    """A row of `gold.log_divergence`, at offsets [from_offset, to_offset). Controllers, and CRCs and epochs at the beginning, are
    parallel.
    """

    from_offset: int
    to_offset: int
    epoch: int | None
    controllers: tuple[int, ...]
    crcs: tuple[int, ...]
    epochs: tuple[int, ...]
    divergence_class: str


def leader_of(format_name: str, payload: bytes) -> int | None:
    """Return the leader that the first batch of an epoch names, or None if the batch is not a LeaderChange."""
    form = format_named(format_name)
    frame = form.form.frame(payload, 0, len(payload), 0)
    for record in form.records(frame) if isinstance(frame, Frame) and frame.is_control else ():
        if isinstance(record, ControlRecord) and record.control == LEADER_CHANGE:
            return int(record.data["leaderId"])
    return None


def leader_epochs(starts: Iterable[EpochStart]) -> list[LeaderEpoch]:
    """Return all epochs by offset. An epoch with two leaders, which must never happen, has two rows."""
    groups: dict[int, list[EpochStart]] = defaultdict(list)
    for each in starts:
        groups[each.epoch].append(each)
    rows: list[tuple[int, int | None, int, int, int, int]] = []
    for epoch, members in sorted(groups.items()):
        leaders = sorted({each.leader for each in members if each.leader is not None})
        for leader in (*leaders,) or (None,):
            named = [each for each in members if each.leader in (leader, None)]
            first = min(named, key=lambda each: (each.start_offset, each.first_ms))
            rows.append(
                (
                    epoch,
                    leader,
                    first.start_offset,
                    max(each.end_offset for each in named),
                    first.first_ms,
                    max(each.last_ms for each in named),
                )
            )
    numbers = [row[0] for row in rows]
    epochs = []
    for epoch, leader, start, end, first_ms, last_ms in rows:
        after = bisect_right(numbers, epoch)
        following = rows[after] if after < len(rows) else None
        until_ms = last_ms if following is None else following[4]
        epochs.append(LeaderEpoch(epoch, leader, start, end if following is None else following[2], max(0, until_ms - first_ms)))
    return epochs


def log_divergence(batches: Iterable[LogBatch]) -> list[Divergence]:
    """Return the ranges in which logs of different controllers hold different batches. Neighbouring ranges are joined."""
    pieces = sorted(_pieces(sorted(batches, key=lambda each: (each.base_offset, each.controller_id))))
    joined: list[Divergence] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and piece.from_offset <= last.to_offset and _alike(piece, last):
            joined[-1] = last._replace(to_offset=max(last.to_offset, piece.to_offset))
        else:
            joined.append(piece)
    return joined


def _alike(one: Divergence, other: Divergence) -> bool:
    return (one.controllers, one.epochs, one.divergence_class) == (other.controllers, other.epochs, other.divergence_class)


def _pieces(batches: list[LogBatch]) -> Iterator[Divergence]:
    """Yield each stretch that differing batches of two controllers share, with all controllers that hold a batch
    of the stretch.
    """
    pairs: dict[tuple[int, int], dict[int, LogBatch]] = defaultdict(dict)
    running: list[LogBatch] = []
    for batch in batches:
        running = [each for each in running if each.last_offset >= batch.base_offset]
        for other in running:
            if other.controller_id != batch.controller_id and other[1:5] != batch[1:5]:
                shared = (max(other.base_offset, batch.base_offset), min(other.last_offset, batch.last_offset) + 1)
                for each in (other, batch):
                    pairs[shared].setdefault(each.controller_id, each)
        running.append(batch)
    for (start, end), members in pairs.items():
        named = [members[controller] for controller in sorted(members)]
        epochs = tuple(each.epoch for each in named)
        differing = [(one, other) for one, other in combinations(named, 2) if one[1:5] != other[1:5]]
        allowed = all(_will_be_truncated(one, other) for one, other in differing)
        yield Divergence(
            start,
            end,
            epochs[0] if len(set(epochs)) == 1 else None,
            tuple(each.controller_id for each in named),
            tuple(each.crc for each in named),
            epochs,
            TAIL if allowed else LOG_MATCHING,
        )


def _will_be_truncated(one: LogBatch, other: LogBatch) -> bool:
    """Return whether the batch of the lower epoch belongs to a log that never followed a later leader, and so
    will be truncated.
    """
    lower = min(one, other, key=lambda each: each.epoch)
    return one.epoch != other.epoch and lower.epoch == lower.last_epoch
