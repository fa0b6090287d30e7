"""The past of a cluster as events in words, marks of elections and changes, and the history of a partition.

Newest batches come from the ring of the follower. Older ones are read by a node from its disk, when a page asks: in spans of
SPAN_OFFSETS, a few in one request. Committed batches never change, so the last spans are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice

import msgspec

from kraftlab.client import AdminClient
from kraftlab.client.time_travel import batches
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.records import ForgottenRequests, NoOp, RequestOutcome
from kraftlab.metadata.topic_names import INTERNAL_TOPICS
from kraftlab.node.history import LoggedBatch, Moment
from kraftlab.node.subject_changes import ObjectChange, Subject, SubjectChange, batch_changes, subject_changes
from kraftlab.quorum.core.batch import LeaderChange

from .follower import Follower
from .images import Images
from .known import KnownBatch
from .rows import BadQuery

EVENTS_MAX = 500
BATCH_EVENTS_MAX = 200
"""Events of one batch in an answer; a filter shows the others."""
KINDS = ("quorum", "broker", "topic", "other")
SPAN_OFFSETS = 10_000
"""A node replays its log from the snapshot before, for each span; so spans are not small."""
SPANS_MAX = 2
"""Spans that one request for events reads."""
SPANS_KEPT = 4
SPANS_MARKED = 2
"""Spans with marks of elections and changes."""
HISTORY_OFFSETS = 100_000


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A batch that changed something: its two offsets, and when it was appended."""

    base_offset: int
    end_offset: int
    at_ms: int


class Election(msgspec.Struct, frozen=True):
    """The first record of a leader. `silent_ms`: time since the batch before, None if that is not known."""

    offset: int
    epoch: int
    at_ms: int
    leader: int
    granted: tuple[int, ...]
    voters: tuple[int, ...]
    silent_ms: int | None


class Past(Images):
    """Answers questions about the past from the follower's ring and from the node that it asks. For worker threads."""

    def __init__(self, client: AdminClient, follower: Follower) -> None:
        super().__init__(client, follower)
        self._told = lru_cache(SPANS_KEPT)(self._tell)

    def _logged(self, start: int, end: int) -> list[LoggedBatch]:
        """Return batches that a node has on its disk. BadQuery, ApiError, ClusterUnreachable."""
        with self.explained(Moment(offset=start)):
            return self.asked(lambda node: list(batches(self.client, node, start, end)))

    def _tell(self, start: int, end: int, generation: int) -> list[KnownBatch]:
        image = self.image(Moment(offset=start)) if start else EMPTY
        found: list[KnownBatch] = []
        for batch in self._logged(start, end):
            found.append(KnownBatch(batch, image))
            delta = MetadataDelta(image)
            delta.replay_all(batch.records, batch.base_offset)
            image = delta.apply(Provenance(found[-1].end, batch.epoch, batch.append_time_ms))
        return found

    def _spans(self, end: int, stop: int) -> Iterator[tuple[int, list[KnownBatch]]]:
        """Yield (start, batches that end before `end`) of spans down to `stop` or the earliest moment, the newest span first. A
        span is in the ring or older, never both.
        """
        begin = (known := self.newest()[0]).begin or 0
        first: int | None = None
        while end > stop:
            is_older = end <= begin
            if is_older and first is None:
                first = self.first()
                stop = max(stop, first)
                if end <= stop:
                    return
            edge = (end - 1) // SPAN_OFFSETS * SPAN_OFFSETS
            start = max(edge, stop, 0 if is_older else begin)
            span = max(edge, first or 0), min(edge + SPAN_OFFSETS, begin)
            told = self._told(*span, self._follower.generation) if is_older else known.between(start, end) or []
            yield start, [each for each in told if start < each.end <= end]
            end = start

    def events(
        self, before: int | None, after: int, kind: str, about: str, limit: int, *, internal: bool = True
    ) -> dict[str, object]:
        """Return the newest events between two offsets, newest first. `internal`: also those of internal topics. `next`: the
        `before` of the next request; None if there are no more. A request reads SPANS_MAX spans at most.
        """
        if kind not in ("", *KINDS):
            raise BadQuery(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
        known, newest = self.newest()[0], self.end
        found: list[ObjectChange] = []
        matches = _matching(about)
        end = newest if before is None else min(before, newest)
        whole = next((told.end for told in known.ring if told.batch.base_offset < end < told.end), end)
        answer = {"offset": newest, "events": found, "next": None}
        spans = self._spans(whole, after)
        for start, span in islice(spans, SPANS_MAX):
            for told in reversed(span):
                some = [
                    each for each in batch_changes(told.before, told.batch) if each.change.offset < end and matches(each.about)
                ]
                found += reversed(
                    _cut([each for each in some if kind in ("", each.kind) and (internal or not _is_internal(each))])
                )
                if len(found) >= min(limit, EVENTS_MAX):
                    return answer | {"next": told.batch.base_offset}
            before = start
        return answer | {"next": None if next(spans, None) is None else before}

    def marks(self) -> dict[str, object]:
        """Return elections and changes among the newest records, oldest first, and since which offset they were looked for."""
        newest = since = self.end
        logged: list[LoggedBatch] = []
        for start, span in islice(self._spans(newest, 0), SPANS_MARKED):
            since = start
            logged[:0] = [told.batch for told in span]
        marks: list[Mark] = []
        elections: list[Election] = []
        last: LoggedBatch | None = None
        for each in logged:
            for change in (control for control in each.control if isinstance(control, LeaderChange)):
                voters, granted = tuple(change.voters), tuple(change.granting_voters)
                silent_ms = None if last is None else each.append_time_ms - last.append_time_ms
                place = each.base_offset, each.epoch, each.append_time_ms
                elections.append(Election(*place, change.leader_id, granted, voters, silent_ms))
            if each.control or any(not isinstance(record, NoOp | RequestOutcome | ForgottenRequests) for record in each.records):
                marks.append(Mark(each.base_offset, each.base_offset + each.record_count, each.append_time_ms))
            last = each
        return {"first": self.first(), "newest": newest, "since": since, "marks": marks, "elections": elections}

    def history(self, topic: str, partition: int) -> list[SubjectChange]:
        """Return every change of a partition in the newest HISTORY_OFFSETS that the log still has, oldest first. LookupError
        without such a partition.
        """
        known, image = self.newest()
        end = image.provenance.offset
        start = max(self.first(), end - HISTORY_OFFSETS)
        ring = known.between(start, end)
        found = self._logged(start, end) if ring is None else [told.batch for told in ring]
        begin = self.image(Moment(offset=start)) if start else EMPTY
        return subject_changes(Subject("topic", f"{topic}-{partition}"), begin, found)


def _is_internal(each: ObjectChange) -> bool:
    return each.kind == "topic" and (each.about if each.partition is None else each.about.rpartition("-")[0]) in INTERNAL_TOPICS


def _cut(found: list[ObjectChange]) -> list[ObjectChange]:
    if len(found) <= BATCH_EVENTS_MAX:
        return found
    more = f"{len(found) - BATCH_EVENTS_MAX} more changes by the same batch; name an object to see its own"
    last = found[BATCH_EVENTS_MAX - 1]
    return [*found[:BATCH_EVENTS_MAX], ObjectChange(last.kind, "…", None, msgspec.structs.replace(last.change, change=more))]


def _matching(about: str) -> Callable[[str], bool]:
    """Return a test for names that contain a text, of which a number at the end is whole: broker 1 is not broker 10."""
    return re.compile(re.escape(about) + ("(?![0-9])" if about[-1:].isdigit() else ""), re.IGNORECASE).search  # type: ignore[return-value]
