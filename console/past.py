"""The past of a cluster: events in words, images of earlier moments, and the difference of two moments.

Newest events come from the ring of the follower. Older batches and images are read by a node from its disk, when a page asks.
"""

from __future__ import annotations

import datetime
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.client import AdminClient
from kraftlab.client.time_travel import batches, image_at
from kraftlab.config.secrets import is_secret
from kraftlab.metadata import records as r
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.difference import change_documents, changes_of, image_differences
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.record_text import record_document
from kraftlab.metadata.tree import Directory, image_tree, plain_document
from kraftlab.node.history import LoggedBatch
from kraftlab.node.subject_changes import Subject, SubjectChange, subject_changes

from .follower import Follower
from .rows import BadQuery

EVENTS_MAX = 500
SPAN_OFFSETS = 2000
"""Offsets of the log that one request for events reads at a node."""
IMAGES_KEPT = 8
CHANGES_MAX = 1000
ENTRIES_MAX = 500


class Event(msgspec.Struct, frozen=True):
    """A change of something. `about` is its name, and `kind` says what it is: quorum, broker, topic or other."""

    kind: str
    about: str
    change: SubjectChange


class _Told(NamedTuple):
    batch: LoggedBatch
    before: MetadataImage


def events_of(batch: LoggedBatch, before: MetadataImage) -> Iterator[Event]:
    """Yield the changes of a batch in words, in the order of their offsets."""
    found: list[Event] = [Event("quorum", "quorum", each) for each in subject_changes(Subject("quorum"), before, [batch])]
    brokers = {
        each.broker_id
        for each in batch.records
        if isinstance(each, r.RegisterBroker | r.UnregisterBroker | r.BrokerRegistrationChange)
    }
    brokers |= {
        int(each.resource_name)
        for each in batch.records
        if isinstance(each, r.Config) and each.resource_type == r.RESOURCE_BROKER and each.resource_name.isdigit()
    }
    for broker in sorted(brokers):
        changes = subject_changes(Subject("broker", str(broker)), before, [batch])
        found += [Event("broker", f"broker {broker}", each) for each in changes]
    for name in _topic_names(batch, before):
        for each in subject_changes(Subject("topic", name), before, [batch]):
            about, _, text = each.change.partition(": ")
            is_partition = re.fullmatch(re.escape(name) + r"-[0-9]+", about) is not None
            found.append(Event("topic", about if is_partition else name, each if not is_partition else _with(each, text)))
    told = {each.change.offset for each in found}
    for offset, record in enumerate(batch.records, batch.base_offset):
        if offset not in told and not isinstance(record, r.NoOp | r.RequestOutcome):
            document = record_document(record, is_secret)
            kind = str(document["type"])
            text = ", ".join(f"{name} {msgspec.json.encode(value).decode()}" for name, value in _data(document))
            change = SubjectChange(offset, batch.epoch, batch.append_time_ms, kind, f"{kind}: {text}"[:500])
            found.append(Event("other", kind.removesuffix("_RECORD").lower().replace("_", " "), change))
    yield from sorted(found, key=lambda each: each.change.offset)


def _with(change: SubjectChange, text: str) -> SubjectChange:
    return msgspec.structs.replace(change, change=text)


def _data(document: dict[str, object]) -> Sequence[tuple[str, object]]:
    data = document["data"]
    assert isinstance(data, dict), "the fields of a record"
    return list(data.items())


def _topic_names(batch: LoggedBatch, before: MetadataImage) -> list[str]:
    ids = dict.fromkeys(
        topic_id
        for each in batch.records
        for topic_id in (
            (each.topic_id,)
            if isinstance(each, r.Topic | r.RemoveTopic | r.Partition | r.PartitionChange)
            else tuple(move[0] for move in each.moves)
            if isinstance(each, r.StartMoves | r.QueueMoves)
            else tuple(key[0] for key in each.partitions)
            if isinstance(each, r.DequeueMoves | r.ChangeMoveThrottles)
            else ()
        )
    )
    new = {each.topic_id: each.name for each in batch.records if isinstance(each, r.Topic)}
    known = {topic_id: topic.name for topic_id in ids if (topic := before.topics.by_id.get(topic_id)) is not None}
    named = [
        each.resource_name for each in batch.records if isinstance(each, r.Config) and each.resource_type == r.RESOURCE_TOPIC
    ]
    exist = {*before.topics.by_name, *new.values()}
    return [*dict.fromkeys([*(new | known).values(), *(name for name in named if name in exist)])]


class Past:
    """Answers questions about the past from the follower's ring and from the node that it asks. For worker threads."""

    def __init__(self, client: AdminClient, follower: Follower) -> None:
        self._client = client
        self._follower = follower
        self._images: OrderedDict[int, MetadataImage] = OrderedDict()

    @property
    def now(self) -> MetadataImage:
        """The newest image. BadQuery before the first one."""
        image = self._follower.image
        if image is None:
            raise BadQuery("the metadata log has not been read yet; is the cluster up?")
        return image

    def image(self, at: str) -> MetadataImage:
        """Return the image of `now`, an offset, or a time: ISO, or milliseconds since 1970 after an @. BadQuery, ApiError."""
        moment = _moment(at)
        if moment is None:
            return self.now
        if moment[0] == "time":
            return image_at(self._client, self._follower.endpoint, time_ms=moment[1])
        return self._image(min(moment[1], self.now.provenance.offset))

    def _image(self, offset: int) -> MetadataImage:
        if offset >= self.now.provenance.offset:
            return self.now
        ring = self._follower.ring
        if ring and ring[0].batch.base_offset <= offset:
            return max(
                (each for each in ring if each.batch.base_offset <= offset), key=lambda each: each.batch.base_offset
            ).before
        image = self._images.get(offset)
        if image is None:
            image = self._images[offset] = image_at(self._client, self._follower.endpoint, offset=offset)
            while len(self._images) > IMAGES_KEPT:
                self._images.popitem(last=False)
        return image

    def told(self, start: int, end: int) -> list[_Told]:
        """Return the batches that begin between two offsets, each with the image before it."""
        ring = self._follower.ring
        if ring and ring[0].batch.base_offset <= start:
            return [_Told(each.batch, each.before) for each in self._follower.kept(start, end)]
        found: list[_Told] = []
        image = self._image(start) if start else MetadataImage()
        for batch in batches(self._client, self._follower.endpoint, start, end):
            found.append(_Told(batch, image))
            delta = MetadataDelta(image)
            delta.replay_all(batch.records, batch.base_offset)
            image = delta.apply(Provenance(batch.base_offset + batch.record_count, batch.epoch, batch.append_time_ms))
        return found

    def events(self, before: int | None, kind: str, about: str, limit: int) -> dict[str, object]:
        """Return the newest events before an offset, newest first, and where the next request continues (None: at the log's
        start). A request reads SPAN_OFFSETS of the log at most.
        """
        end = self.now.provenance.offset if before is None else min(before, self.now.provenance.offset)
        start = max(0, end - SPAN_OFFSETS)
        found: list[Event] = []
        for told in reversed(self.told(start, end)):
            some = [each for each in events_of(*told) if kind in ("", each.kind) and _is_about(each.about, about)]
            found += reversed(some)
            if len(found) >= min(limit, EVENTS_MAX):
                start = told.batch.base_offset
                break
        return {"offset": self.now.provenance.offset, "events": found, "next": start or None}

    def history(self, topic: str, partition: int) -> list[SubjectChange]:
        """Return every change of a partition that the log still has, oldest first. LookupError without such a partition."""
        first, end, ring = self.first(), self.now.provenance.offset, self._follower.ring
        if ring and ring[0].batch.base_offset <= first:
            before, logged = ring[0].before, [each.batch for each in ring]
        else:
            before = self._image(first) if first else MetadataImage()
            logged = list(batches(self._client, self._follower.endpoint, first, end))
        return subject_changes(Subject("topic", f"{topic}-{partition}"), before, logged)

    def first(self) -> int:
        """Return the earliest offset with an image at the node."""
        from kraftlab.admin.v1 import admin_pb2 as pb

        answer = self._client.call_at(self._follower.endpoint, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest())
        return answer.snapshots[0].end_offset if answer.snapshots and answer.log_start_offset else 0

    def tree(self, at: str, path: str) -> dict[str, object]:
        """Return one directory of the tree of an image: its names, and the values of those that are no directories. BadQuery."""
        image = self.image(at)
        node: object = image_tree(image, is_secret)
        parts = [each for each in path.split("/") if each]
        for name in parts:
            if not isinstance(node, Directory) or name not in node:
                raise BadQuery(f"there is no {path!r} at offset {image.provenance.offset}")
            node = node.get(name)
        entries: list[dict[str, object]] = []
        assert isinstance(node, Directory) or parts, "the root is a directory"
        if isinstance(node, Directory):
            names = [*node.names()]
            for name in names[:ENTRIES_MAX]:
                inner = node.get(name)
                if isinstance(inner, Directory):
                    entries.append({"name": name, "directory": True})
                else:
                    entries.append({"name": name, "value": plain_document(inner)})
        at_offset = image.provenance
        return {
            "offset": at_offset.offset,
            "epoch": at_offset.epoch,
            "at_ms": at_offset.append_time_ms,
            "path": parts,
            "total": len([*node.names()]) if isinstance(node, Directory) else 0,
            "entries": entries,
        }

    def difference(self, start: str, end: str) -> dict[str, object]:
        """Return what differs between two moments, and the records in between. BadQuery, ApiError."""
        before, after = self.image(start), self.image(end)
        changes = [*change_documents(changes_of(image_differences(before, after, is_secret)))]
        return {
            "from": {"offset": before.provenance.offset, "at_ms": before.provenance.append_time_ms},
            "to": {"offset": after.provenance.offset, "at_ms": after.provenance.append_time_ms},
            "total": len(changes),
            "changes": changes[:CHANGES_MAX],
        }


def _is_about(name: str, about: str) -> bool:
    return not about or name == about or name.startswith(f"{about}-") or about in name


def _moment(text: str) -> tuple[str, int] | None:
    """Return ("offset", N) or ("time", ms), None for now. BadQuery."""
    if text in ("", "now"):
        return None
    if re.fullmatch(r"[0-9]{1,18}", text):
        return "offset", int(text)
    if re.fullmatch(r"@[0-9]{1,15}", text):
        return "time", int(text[1:])
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise BadQuery(f"{text!r} is no moment; give an offset, now, a time as 2026-11-21T17:06:35Z, or @MILLISECONDS") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return "time", round(moment.timestamp() * 1000)
