"""Images of earlier moments: one directory of an image, and the difference of two images.

The newest images come from the ring of the follower. Older ones are read by a node from its disk, when a page asks, and the last
ones are kept. A node replaces secrets by digests with a key of its own; so two images are compared only if both come from the
ring or both from one node.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TypeVar

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.time_travel import image_at
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.secrets import is_secret
from kraftlab.metadata.difference import BOOKKEEPING, change_documents, changes_of, image_differences
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.tree import Directory, Node, image_tree, plain_document
from kraftlab.node.history import NEWEST, Moment

from .follower import Follower
from .known import Known
from .rows import BadQuery

T = TypeVar("T")
IMAGES_KEPT = 8
CHANGES_MAX = 1000
ENTRIES_MAX = 500


class Images:
    """Images of the follower's ring and of the node that it asks. For worker threads."""

    def __init__(self, client: AdminClient, follower: Follower) -> None:
        self.client = client
        self._follower = follower
        self._image_of = lru_cache(IMAGES_KEPT)(
            lambda node, moment, generation: image_at(client, node, offset=moment.offset, time_ms=moment.time_ms)
        )

    def asked(self, ask: Callable[[Endpoint], T]) -> T:
        """Ask the node that is followed, or the next one if that one has just died. ApiError, ClusterUnreachable."""
        nodes = dict.fromkeys((self._follower.endpoint, *self._follower.nodes()))
        for node in [*nodes][:-1]:
            with suppress(ClusterUnreachable):
                return ask(node)
        return ask([*nodes][-1])

    def newest(self) -> tuple[Known, MetadataImage]:
        """Return what the follower knows, and its image. BadQuery before the first one."""
        known = self._follower.known
        if known.image is None:
            raise BadQuery("the metadata log has not been read yet; is the cluster up?")
        return known, known.image

    @property
    def end(self) -> int:
        """The newest offset. BadQuery before the first image."""
        return self.newest()[1].provenance.offset

    def _ask_image(self, moment: Moment) -> MetadataImage:
        return self.asked(lambda node: self._image_of(node, moment, self._follower.generation))

    @contextmanager
    def explained(self, moment: Moment) -> Iterator[None]:
        """Say which the earliest moment is, where a node no longer has one."""
        try:
            yield
        except ApiError as error:
            first = self.first() if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else 0
            if not first:
                raise
            at_ms = self._ask_image(Moment(offset=first)).provenance.append_time_ms
            if moment.reaches(first, at_ms):
                raise
            since = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
            text = f"the earliest moment that exists is offset {first} ({since:%Y-%m-%dT%H:%M:%SZ}); ask for that or a later one"
            raise BadQuery(text) from error

    def first(self) -> int:
        """Return the earliest offset with an image at the node that is asked."""
        request = pb.ListSnapshotsRequest()
        answer = self.asked(lambda node: self.client.call_at(node, pb.ListSnapshotsResponse, request))
        return answer.snapshots[0].end_offset if answer.snapshots and answer.log_start_offset else answer.log_start_offset

    def _kept(self, moment: Moment) -> MetadataImage | None:
        """Return the image of a moment if it needs no node."""
        known, newest = self.newest()
        if moment.offset is not None:
            return newest if moment.offset >= newest.provenance.offset else known.at(moment.offset)
        if moment.time_ms is None or moment.time_ms >= newest.provenance.append_time_ms:
            return newest
        return known.at_time(moment.time_ms)

    def _asked(self, moment: Moment) -> MetadataImage:
        with self.explained(moment):
            return self._ask_image(Moment(offset=self.end) if moment == NEWEST else moment)

    def image(self, moment: Moment) -> MetadataImage:
        """Return the image of a moment. BadQuery if the log no longer has it; ApiError, ClusterUnreachable."""
        return self._kept(moment) or self._asked(moment)

    def _reached(self, moment: Moment) -> Moment:
        """Return a moment that is not after the end of the log. BadQuery."""
        if moment.offset is not None and moment.offset > self.end:
            raise BadQuery(f"the log ends at offset {self.end}, and {moment.offset} is not written yet; ask for an earlier one")
        return moment

    def tree(self, at: str, path: str, text: str) -> dict[str, object]:
        """Return one directory of the tree of an image: its names with `text` in them, and the values of the others;
        or the value at the path. BadQuery.
        """
        image = self.image(self._reached(moment_of(at)))
        node: Node = image_tree(image, is_secret)
        parts = [each for each in path.split("/") if each]
        for name in parts:
            if not isinstance(node, Directory) or name not in node:
                raise BadQuery(f"there is no {path!r} at offset {image.provenance.offset}; look at the directory above")
            node = node.get(name)
        found: dict[str, object] = {"path": parts, **_place(image)}
        if not isinstance(node, Directory):
            return {**found, "total": 1, "entries": [{"name": parts[-1], "value": plain_document(node)}]}
        names = [each for each in node.names() if text.lower() in each.lower()]
        entries = [
            {"name": name, "directory": True} if isinstance(inner, Directory) else {"name": name, "value": plain_document(inner)}
            for name, inner in ((name, node.get(name)) for name in names[:ENTRIES_MAX])
        ]
        return {**found, "total": len(names), "entries": entries}

    def difference(self, start: str, end: str, text: str) -> dict[str, object]:
        """Return what differs between two moments, where the path has `text`. BadQuery, ApiError."""
        moments = [self._reached(moment_of(start)), self._reached(moment_of(end))]
        kept = [self._kept(each) for each in moments]
        before, after = (
            image if image is not None and None not in kept else self._asked(moment)
            for image, moment in zip(kept, moments, strict=True)
        )
        found = (each for each in image_differences(before, after, is_secret) if each.path[0] != BOOKKEEPING)
        changes = [each for each in change_documents(changes_of(found)) if text.lower() in str(each["path"]).lower()]
        return {"from": _place(before), "to": _place(after), "total": len(changes), "changes": changes[:CHANGES_MAX]}


def _place(image: MetadataImage) -> dict[str, object]:
    at = image.provenance
    return {"offset": at.offset, "epoch": at.epoch, "at_ms": at.append_time_ms}


def moment_of(text: str) -> Moment:
    """Return the moment of `now`, an offset, or a time: ISO (UTC by default), or milliseconds since 1970 after an @. BadQuery."""
    if text in ("", "now"):
        return NEWEST
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Moment(offset=int(text))
    if re.fullmatch(r"@[0-9]{1,15}", text):
        return Moment(time_ms=int(text[1:]))
    try:
        moment = datetime.datetime.fromisoformat(text)
        return Moment(time_ms=round(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        shown = text[:40]
        raise BadQuery(
            f"{shown!r} is not a moment; give an offset, now, a time as 2026-11-21T17:06:35Z, or @MILLISECONDS"
        ) from None
