"""OffsetCommit, OffsetFetch and OffsetDelete at the group's coordinator.

Topics are named, or from version 10 on given by their ids. What the metadata does not know is answered first, then what the
coordinator answers, then the topics that the caller may not have. An offset that was committed for a deleted topic does not count
for a new topic of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kraftlab.access.authorizer import Rights
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO
from kraftlab.gateway.codec import KafkaRequest
from kraftlab.gateway.door import LocalAnswer
from kraftlab.messages.generated.offset_commit_request import OffsetCommitRequest
from kraftlab.messages.generated.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraftlab.messages.generated.offset_delete_request import OffsetDeleteRequest
from kraftlab.messages.generated.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kraftlab.messages.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftlab.messages.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.metadata.image import TopicImage
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import Turns

from ..groups import offset_jobs
from ..groups.coordinator import Coordinator
from ..groups.offset_jobs import Codes
from ..groups.offsets import NO_EPOCH, CommittedOffset, Place
from .consumer_groups import RightsOf, check_group

NO_OFFSET = -1
NO_RETENTION = -1
LAST_MS = 2**63 - 1
"""The last time that a record of an offset holds."""
FIRST_BY_ID = 10
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_TOP_LEVEL_ERROR = 2
FIRST_WITH_UNKNOWN_GROUPS = 9
"""Version of OffsetCommit from which on a member whose group is gone gets GROUP_ID_NOT_FOUND."""

Named = tuple[str, bytes]
"""Name and id of a topic in an answer. Only one of them is set."""
Offset = tuple[int, int, int, str, int]
"""Partition, offset, leader epoch, note and error code: the fields of an offset in an answer."""
FoundTopic = tuple[Named, list[Offset]]


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, rights: RightsOf, metadata_max_bytes: int) -> None:
        self._coordinator = coordinator
        self._rights = rights
        self._metadata_max_bytes = metadata_max_bytes

    # --- OffsetCommit --------------------------------------------------------------------------------------------------------

    async def commit(self, request: KafkaRequest, caller: Caller) -> OffsetCommitResponse:
        """Commit offsets. Requires READ on the group and on each topic.

        Error codes per partition: 100 unknown id, 3 unknown name or partition, 12 the note is too large, 29 not authorized; of
        the group: 14, 15, 16 about the coordinator, 22, 25, 27, 69, 82 about the member, 28 too many offsets for a batch, 30.
        """
        body: OffsetCommitRequest = request.body
        by_id, now_ms, turns = request.header.version >= FIRST_BY_ID, wall_clock_ms(), Turns()
        rights = self._rights(caller.principal, caller.host)
        expires_at_ms = None
        if body.retention_time_ms != NO_RETENTION:
            expires_at_ms = min(max(now_ms + body.retention_time_ms, 0), LAST_MS)
        rows: dict[Named, list[OffsetCommitResponsePartition]] = {}
        entries: list[tuple[Place, CommittedOffset]] = []
        refused: list[tuple[Named, int]] = []

        def answer(named: Named, number: int, code: ErrorCode) -> None:
            rows.setdefault(named, []).append(OffsetCommitResponsePartition(number, code))

        may_group = rights.allow(Operation.READ, ResourceType.GROUP, body.group_id)
        for topic in body.topics:
            await turns.step()
            named = topic.name, topic.topic_id
            image = self._topic(named, by_id=by_id)
            may = _may(rights, Operation.READ, topic.name, image)
            for partition in topic.partitions:
                await turns.step()
                number = partition.partition_index
                if not may_group:
                    answer(named, number, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                elif not may:
                    refused.append((named, number))
                elif image is None or number not in image.partitions:
                    answer(named, number, _unknown(image, by_id=by_id))
                else:
                    epoch, note = partition.committed_leader_epoch, partition.committed_metadata or ""
                    committed = CommittedOffset(partition.committed_offset, epoch, note, now_ms, expires_at_ms, image.topic_id)
                    entries.append(((image.name, number), committed))
        if entries:
            codes = await self._commit(body, entries, request.header.version)
            for ((name, number), committed), code in zip(entries, codes, strict=True):
                await turns.step()
                answer(_named(name, committed.topic_id, by_id=by_id), number, code)
        for named, number in refused:
            answer(named, number, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(*named, found) for named, found in rows.items()])

    async def _commit(
        self, body: OffsetCommitRequest, entries: Sequence[tuple[Place, CommittedOffset]], version: int
    ) -> Sequence[ErrorCode]:
        request = offset_jobs.Commit(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id_or_member_epoch,
            entries,
            ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_UNKNOWN_GROUPS else ErrorCode.ILLEGAL_GENERATION,
        )
        try:
            shard = self._coordinator.shard_of(body.group_id)
            answer = await shard.ask(Codes, partial(offset_jobs.commit, shard, request, self._metadata_max_bytes))
        except ApiError as error:
            return [error.code] * len(entries)
        return answer.codes

    # --- OffsetFetch ---------------------------------------------------------------------------------------------------------

    async def fetch(self, request: KafkaRequest, caller: Caller) -> OffsetFetchResponse:
        """Return committed offsets, -1 where there is none. Requires DESCRIBE on each group and topic; of a request for all
        topics, those without the right are left out.

        Errors of a group: 14, 15, 16, 30. Of a partition: 100 unknown id, 29 not authorized.
        """
        body: OffsetFetchRequest = request.body
        rights, version = self._rights(caller.principal, caller.host), request.header.version
        if version >= FIRST_WITH_SEVERAL_GROUPS:
            groups = []
            for group in body.groups:
                code, found = await self._fetch(group.group_id, group.topics, rights, by_id=version >= FIRST_BY_ID)
                topics = [
                    OffsetFetchResponseTopics(*named, [OffsetFetchResponsePartitions(*offset) for offset in offsets])
                    for named, offsets in found
                ]
                groups.append(OffsetFetchResponseGroup(group.group_id, topics, code))
            return OffsetFetchResponse(groups=groups)
        code, found = await self._fetch(body.group_id, body.topics, rights, by_id=False)
        if code and version < FIRST_WITH_TOP_LEVEL_ERROR:
            found = [
                ((topic.name, ZERO), [_offset(number, None, code) for number in topic.partition_indexes])
                for topic in body.topics or ()
            ]
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(*offset) for offset in offsets])
                for (name, _), offsets in found
            ],
            error_code=code,
        )

    async def _fetch(
        self,
        group_id: str,
        asked: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
        rights: Rights,
        *,
        by_id: bool,
    ) -> tuple[ErrorCode, list[FoundTopic]]:
        """Return the error of a group, and its offsets by topic. `asked`: None for all topics."""
        try:
            check_group(rights, Operation.DESCRIBE, group_id)
            shard = self._coordinator.shard_of(group_id)
            found: dict[Place, CommittedOffset] = await shard.ask(dict, partial(offset_jobs.fetch, shard, group_id))
        except ApiError as error:
            return error.code, []
        topics = self._coordinator.image.topics
        valid = {place: each for place, each in found.items() if each.topic_id in (None, topics.by_name.get(place[0]))}
        if asked is None:
            return ErrorCode.NONE, self._all_topics(valid, rights, by_id=by_id)
        rows: list[FoundTopic] = []
        unknown: list[FoundTopic] = []
        refused: list[FoundTopic] = []
        turns = Turns()
        for topic in asked:
            await turns.step()
            named = topic.name, topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO
            image = self._topic(named, by_id=by_id)
            code, answers = ErrorCode.NONE, rows
            if not _may(rights, Operation.DESCRIBE, topic.name, image):
                code, answers = ErrorCode.TOPIC_AUTHORIZATION_FAILED, refused
            elif image is None and by_id:
                code, answers = ErrorCode.UNKNOWN_TOPIC_ID, unknown
            name = image.name if image is not None else topic.name
            offsets = []
            for number in topic.partition_indexes:
                await turns.step()
                offsets.append(_offset(number, None if code else valid.get((name, number)), code))
            answers.append((named, offsets))
        return ErrorCode.NONE, [*rows, *unknown, *refused]

    def _all_topics(self, found: Mapping[Place, CommittedOffset], rights: Rights, *, by_id: bool) -> list[FoundTopic]:
        """Return all offsets of a group. A topic that is gone has no id, so it is left out of answers with ids."""
        by_name = self._coordinator.image.topics.by_name
        rows: dict[Named, list[Offset]] = {}
        for (name, number), committed in sorted(found.items()):
            topic_id = by_name.get(name)
            if (topic_id is not None or not by_id) and rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                rows.setdefault(_named(name, topic_id, by_id=by_id), []).append(_offset(number, committed))
        return list(rows.items())

    # --- OffsetDelete --------------------------------------------------------------------------------------------------------

    async def delete(self, request: KafkaRequest, caller: Caller) -> OffsetDeleteResponse:
        """Delete offsets. Requires DELETE on the group and READ on each topic.

        Error codes: 24, 30, 69, 68 and those of the coordinator for the whole request; 3 unknown, 29 not authorized, 86 in use.
        """
        body: OffsetDeleteRequest = request.body
        rights, turns = self._rights(caller.principal, caller.host), Turns()
        check_group(rights, Operation.DELETE, body.group_id)
        if not body.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        rows: dict[str, list[OffsetDeleteResponsePartition]] = {}
        places: list[Place] = []
        refused: list[Place] = []
        for topic in body.topics:
            await turns.step()
            image = self._topic((topic.name, ZERO), by_id=False)
            may = _may(rights, Operation.READ, topic.name, image)
            for partition in topic.partitions:
                await turns.step()
                number = partition.partition_index
                if not may:
                    refused.append((topic.name, number))
                elif image is not None and number in image.partitions:
                    places.append((topic.name, number))
                else:
                    unknown = OffsetDeleteResponsePartition(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    rows.setdefault(topic.name, []).append(unknown)
        codes: Sequence[ErrorCode] = ()
        if places:
            shard = self._coordinator.shard_of(body.group_id)
            answer = await shard.ask(Codes, partial(offset_jobs.delete_offsets, shard, body.group_id, places))
            if answer.error:
                raise ApiError(answer.error)
            codes = answer.codes
        codes = [*codes, *[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(refused)]
        for (name, number), code in zip([*places, *refused], codes, strict=True):
            rows.setdefault(name, []).append(OffsetDeleteResponsePartition(number, code))
        return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name, found) for name, found in rows.items()])

    # --- topics --------------------------------------------------------------------------------------------------------------

    def _topic(self, named: Named, *, by_id: bool) -> TopicImage | None:
        name, topic_id = named
        topics = self._coordinator.image.topics
        return topics.by_id.get(topic_id) if by_id else topics.get(name)

    def calls(self) -> Mapping[str, LocalAnswer]:
        """Handlers by the names of their calls."""
        return {"OffsetCommit": self.commit, "OffsetFetch": self.fetch, "OffsetDelete": self.delete}


def _may(rights: Rights, operation: Operation, name: str, image: TopicImage | None) -> bool:
    """Return True also for an id without a topic, which is refused as unknown."""
    name = image.name if image is not None else name
    return not name or rights.allow(operation, ResourceType.TOPIC, name)


def _named(name: str, topic_id: bytes | None, *, by_id: bool) -> Named:
    return ("", topic_id) if topic_id is not None and by_id else (name, ZERO)


def _unknown(image: TopicImage | None, *, by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if image is None and by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _offset(number: int, committed: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE) -> Offset:
    if committed is None:
        return number, NO_OFFSET, NO_EPOCH, "", code
    return number, committed.offset, committed.leader_epoch, committed.metadata, code
