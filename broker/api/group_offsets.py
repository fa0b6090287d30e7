"""OffsetCommit, OffsetFetch and OffsetDelete at the group's coordinator.

Topics are named, or from version 10 on given by their ids. What the metadata does not know is answered first; only the rest goes
to the coordinator. An offset that was committed for a deleted topic does not count for a new topic of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import from_text, to_text
from kraftlab.metadata.image import TopicImage
from kraftlab.rpc.turns import Turns
from kraftlab.rpc.versions import version_of

from ..groups import offset_jobs
from ..groups.coordinator import Coordinator
from ..groups.offset_jobs import Codes
from ..groups.offsets import NO_EPOCH, CommittedOffset, Place

NO_OFFSET = -1
NO_RETENTION = -1
LAST_MS = 2**63 - 1
"""The last time that a record of an offset holds."""
FIRST_BY_ID = 10
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOP_LEVEL_ERROR = 2
FIRST_WITH_UNKNOWN_GROUPS = 9
"""Version of OffsetCommit from which on a member whose group is gone gets GROUP_ID_NOT_FOUND."""


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, metadata_max_bytes: int) -> None:
        self._coordinator = coordinator
        self._metadata_max_bytes = metadata_max_bytes

    # --- OffsetCommit --------------------------------------------------------------------------------------------------------

    async def commit(self, message: Message) -> Message:
        """Commit offsets.

        Error codes per partition: 100 unknown id, 3 unknown name or partition, 12 the note is too large; of the group: 14, 15, 16
        about the coordinator, 22, 25, 27, 69, 82 about the member, 28 too many offsets for a batch.
        """
        assert isinstance(message, admin_pb2.OffsetCommitRequest)
        version, response, now_ms = version_of(message), admin_pb2.OffsetCommitResponse(), wall_clock_ms()
        retention_ms = message.retention_time_ms if message.HasField("retention_time_ms") else NO_RETENTION
        expires_at_ms = None if retention_ms == NO_RETENTION else min(max(now_ms + retention_ms, 0), LAST_MS)
        entries: list[tuple[Place, CommittedOffset]] = []
        rows = _Rows(response.topics)
        turns = Turns()
        for topic in message.topics:
            await turns.step()
            image = self._topic(topic, by_id=version >= FIRST_BY_ID)
            for partition in topic.partitions:
                await turns.step()
                number = partition.partition_index
                if image is None or number not in image.partitions:
                    code = _unknown(image, by_id=version >= FIRST_BY_ID)
                    row = rows.of(topic.name, topic.topic_id)
                    row.partitions.add(partition_index=number, error_code=code)
                    continue
                epoch = partition.committed_leader_epoch if partition.HasField("committed_leader_epoch") else NO_EPOCH
                committed = CommittedOffset(
                    partition.committed_offset, epoch, partition.committed_metadata, now_ms, expires_at_ms, image.topic_id
                )
                entries.append(((image.name, number), committed))
        if entries:
            codes = await self._commit(message, entries, version)
            for ((name, number), committed), code in zip(entries, codes, strict=True):
                await turns.step()
                row = rows.of(*self._named(name, committed.topic_id, version))
                row.partitions.add(partition_index=number, error_code=code)
        return response

    async def _commit(
        self, message: admin_pb2.OffsetCommitRequest, entries: Sequence[tuple[Place, CommittedOffset]], version: int
    ) -> Sequence[ErrorCode]:
        generation = message.generation_id_or_member_epoch if message.HasField("generation_id_or_member_epoch") else -1
        request = offset_jobs.Commit(
            message.group_id,
            message.member_id,
            message.group_instance_id if message.HasField("group_instance_id") else None,
            generation,
            entries,
            ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_UNKNOWN_GROUPS else ErrorCode.ILLEGAL_GENERATION,
        )
        try:
            shard = self._coordinator.shard_of(message.group_id)
            answer = await shard.ask(Codes, partial(offset_jobs.commit, shard, request, self._metadata_max_bytes))
        except ApiError as error:
            return [error.code] * len(entries)
        return answer.codes

    # --- OffsetFetch ---------------------------------------------------------------------------------------------------------

    async def fetch(self, message: Message) -> Message:
        """Return committed offsets, -1 where there is none. Errors of a group: 14, 15, 16. Of a partition: 100 unknown id."""
        assert isinstance(message, admin_pb2.OffsetFetchRequest)
        version, response = version_of(message), admin_pb2.OffsetFetchResponse()
        if version >= FIRST_WITH_SEVERAL_GROUPS:
            for group in message.groups:
                row = response.groups.add(group_id=group.group_id)
                row.error_code = await self._fetch(row, group, version)
            return response
        code = await self._fetch(response, message, version)
        response.header.error_code = code
        if code:
            response.header.error_message = code.message
        if code and version < FIRST_WITH_TOP_LEVEL_ERROR:
            for topic in message.topics.values:
                result = response.topics.add(name=topic.name)
                for number in topic.partition_indexes:
                    _add_offset(result, number, None, code)
        return response

    async def _fetch(self, row: Any, asked: Any, version: int) -> ErrorCode:
        """Fill the answer about one group; return the group's error."""
        try:
            shard = self._coordinator.shard_of(asked.group_id)
            found: dict[Place, CommittedOffset] = await shard.ask(dict, partial(offset_jobs.fetch, shard, asked.group_id))
        except ApiError as error:
            return error.code
        topics = self._coordinator.image.topics
        valid = {place: each for place, each in found.items() if each.topic_id in (None, topics.by_name.get(place[0]))}
        if not asked.HasField("topics"):
            self._add_all(row, valid, version)
            return ErrorCode.NONE
        unknown, turns = [], Turns()
        for topic in asked.topics.values:
            await turns.step()
            image = self._topic(topic, by_id=version >= FIRST_BY_ID)
            if image is None and version >= FIRST_BY_ID:
                unknown.append(topic)
                continue
            name = image.name if image is not None else topic.name
            result = row.topics.add(name=topic.name, topic_id=topic.topic_id)
            for number in topic.partition_indexes:
                await turns.step()
                _add_offset(result, number, valid.get((name, number)))
        for topic in unknown:
            await turns.step()
            result = row.topics.add(topic_id=topic.topic_id)
            for number in topic.partition_indexes:
                await turns.step()
                _add_offset(result, number, None, ErrorCode.UNKNOWN_TOPIC_ID)
        return ErrorCode.NONE

    def _add_all(self, row: Any, found: dict[Place, CommittedOffset], version: int) -> None:
        """Add all offsets of a group. A topic that is gone has no id, so that it is left out of answers with ids."""
        by_name = self._coordinator.image.topics.by_name
        rows = _Rows(row.topics)
        for (name, number), committed in sorted(found.items()):
            topic_id = by_name.get(name)
            if topic_id is not None or version < FIRST_BY_ID:
                _add_offset(rows.of(*self._named(name, topic_id, version)), number, committed)

    # --- OffsetDelete --------------------------------------------------------------------------------------------------------

    async def delete(self, message: Message) -> Message:
        """Delete offsets. Error codes: 24, 69, 68 and those of the coordinator for the whole request; 3 unknown, 86 in use."""
        assert isinstance(message, admin_pb2.OffsetDeleteRequest)
        if not message.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        response = admin_pb2.OffsetDeleteResponse()
        rows = _Rows(response.topics)
        places: list[Place] = []
        turns = Turns()
        for topic in message.topics:
            await turns.step()
            image = self._topic(topic, by_id=False)
            for partition in topic.partitions:
                await turns.step()
                number = partition.partition_index
                if image is not None and number in image.partitions:
                    places.append((topic.name, number))
                else:
                    row = rows.of(topic.name)
                    row.partitions.add(partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if places:
            shard = self._coordinator.shard_of(message.group_id)
            answer = await shard.ask(Codes, partial(offset_jobs.delete_offsets, shard, message.group_id, places))
            if answer.error:
                raise ApiError(answer.error)
            for (name, number), code in zip(places, answer.codes, strict=True):
                rows.of(name).partitions.add(partition_index=number, error_code=code)
        return response

    # --- topics --------------------------------------------------------------------------------------------------------------

    def _topic(self, topic: Any, *, by_id: bool) -> TopicImage | None:
        topics = self._coordinator.image.topics
        if by_id:
            try:
                return topics.by_id.get(from_text(topic.topic_id))
            except ValueError:
                return None
        topic_id = topics.by_name.get(topic.name)
        return None if topic_id is None else topics.by_id[topic_id]

    def _named(self, name: str, topic_id: bytes | None, version: int) -> tuple[str, str]:
        """Name and id of a topic in an answer of that version."""
        return ("", to_text(topic_id)) if topic_id is not None and version >= FIRST_BY_ID else (name, "")


def _unknown(image: TopicImage | None, *, by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if image is None and by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Rows:
    """The entries of topics in an answer. Each is found by its topic in the same time, however many there are."""

    def __init__(self, topics: Any) -> None:
        self._topics = topics
        self._by_topic: dict[tuple[str, str], Any] = {}

    def of(self, name: str, topic_id: str = "") -> Any:
        """Return the entry of a topic, which is added if it is not there."""
        row = self._by_topic.get((name, topic_id))
        if row is None:
            row = self._topics.add(name=name, topic_id=topic_id) if topic_id else self._topics.add(name=name)
            self._by_topic[name, topic_id] = row
        return row


def _add_offset(row: Any, number: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE) -> None:
    row.partitions.add(
        partition_index=number,
        committed_offset=NO_OFFSET if committed is None else committed.offset,
        committed_leader_epoch=NO_EPOCH if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=code,
    )
