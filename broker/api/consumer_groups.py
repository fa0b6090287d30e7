"""Calls of consumer groups at their coordinator: from messages to the coordinator's jobs, and back.

Membership (JoinGroup to LeaveGroup) goes to the group's state machine. Offsets are checked against the metadata first: unknown
topics and partitions are answered here, before the others, as in Kafka. FindCoordinator and ListGroups are about this broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial

import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.methods import LocalCall
from kraftlab.rpc.server import Call
from kraftlab.rpc.versions import version_of

from ..groups import offset_jobs
from ..groups.coordinator import Coordinator
from ..groups.group import (
    Group,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Protocol,
    State,
    Sync,
    SyncAnswer,
)
from ..groups.shard import Shard

GROUP_KEY = 0
TRANSACTION_KEY = 1
NO_NODE = NO_PORT = -1
CLASSIC = "classic"
FIRST_WITH_MEMBER_ID = 4
"""Version of JoinGroup from which on a new member needs an id (KIP-394)."""
FIRST_WITH_SKIPPED_ASSIGNMENT = 9
FIRST_WITH_PROTOCOL = 5
"""Version of SyncGroup from which on the protocol is required."""
FIRST_WITH_SEVERAL_LEAVERS = 3
FIRST_WITH_SEVERAL_KEYS = 4
FIRST_WITH_UNKNOWN_GROUPS = 6
"""Version of DescribeGroups from which on an unknown group is an error."""
GROUPS_AT_ONCE = 500
"""Number of groups after which other tasks get their turn."""


class GroupMembership:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def join(self, message: Message, call: Call) -> Message:
        assert isinstance(message, admin_pb2.JoinGroupRequest)
        shard, version = self._coordinator.shard_of(_named(message.group_id)), version_of(message)
        instance_id = message.group_instance_id if message.HasField("group_instance_id") else None
        session_ms, rebalance_ms = message.session_timeout_ms, message.rebalance_timeout_ms
        given = message.HasField("rebalance_timeout_ms") and rebalance_ms >= 0
        answer = await shard.send(
            JoinAnswer,
            message.group_id,
            lambda token: Join(
                token=token,
                member_id=message.member_id,
                new_member_id=f"{call.client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
                instance_id=instance_id,
                client_id=call.client_id,
                client_host=f"/{call.host}",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms if given else session_ms,
                protocol_type=message.protocol_type,
                protocols=tuple(Protocol(each.name, each.metadata) for each in message.protocols),
                needs_id=version >= FIRST_WITH_MEMBER_ID,
                can_skip_assignment=version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
            ),
        )
        response = admin_pb2.JoinGroupResponse(
            header=_header(answer.error),
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
        )
        for member_id, member_instance_id, metadata in answer.members:
            response.members.add(member_id=member_id, group_instance_id=member_instance_id, metadata=metadata)
        return response

    async def sync(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.SyncGroupRequest)
        has_protocol = message.HasField("protocol_type") and message.HasField("protocol_name")
        if version_of(message) >= FIRST_WITH_PROTOCOL and not has_protocol:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol's type and name are required from version 5 on.")
        shard = self._coordinator.shard_of(_named(message.group_id))
        answer = await shard.send(
            SyncAnswer,
            message.group_id,
            lambda token: Sync(
                token=token,
                member_id=message.member_id,
                instance_id=message.group_instance_id if message.HasField("group_instance_id") else None,
                generation=message.generation_id,
                protocol_type=message.protocol_type if message.HasField("protocol_type") else None,
                protocol_name=message.protocol_name if message.HasField("protocol_name") else None,
                assignments={each.member_id: each.assignment for each in message.assignments},
            ),
        )
        return admin_pb2.SyncGroupResponse(
            header=_header(answer.error),
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )

    async def heartbeat(self, message: Message) -> Message:
        """Keep the member's session. While the group is loaded every heartbeat is good: its sessions begin after that."""
        assert isinstance(message, admin_pb2.HeartbeatRequest)
        shard = self._coordinator.shard_of(_named(message.group_id))
        try:
            answer = await shard.send(
                HeartbeatAnswer,
                message.group_id,
                lambda token: Heartbeat(
                    token=token,
                    member_id=message.member_id,
                    instance_id=message.group_instance_id if message.HasField("group_instance_id") else None,
                    generation=message.generation_id,
                ),
                waits=False,
            )
        except ApiError as error:
            if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            answer = HeartbeatAnswer()
        return admin_pb2.HeartbeatResponse(header=_header(answer.error))

    async def leave(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.LeaveGroupRequest)
        shard = self._coordinator.shard_of(_named(message.group_id))
        is_single = version_of(message) < FIRST_WITH_SEVERAL_LEAVERS
        members = [admin_pb2.LeaveGroupMember(member_id=message.member_id)] if is_single else message.members
        leavers = tuple(
            Leaver(each.member_id, each.group_instance_id if each.HasField("group_instance_id") else None) for each in members
        )
        answer = await shard.send(LeaveAnswer, message.group_id, lambda token: Leave(token=token, members=leavers))
        if is_single:
            return admin_pb2.LeaveGroupResponse(header=_header(answer.errors[0]))
        response = admin_pb2.LeaveGroupResponse()
        for leaver, code in zip(leavers, answer.errors, strict=True):
            response.members.add(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code)
        return response


class GroupAdmin:
    """FindCoordinator, DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def find(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.FindCoordinatorRequest)
        response = admin_pb2.FindCoordinatorResponse()
        if version_of(message) < FIRST_WITH_SEVERAL_KEYS:
            response.node_id, response.host, response.port = self._find(message.key_type, message.key)
            response.header.error_message = "NONE"  # as in Kafka; older clients show it
            return response
        for index, key in enumerate(message.coordinator_keys, 1):
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            row = response.coordinators.add(key=key, node_id=NO_NODE, port=NO_PORT, error_message="")
            try:
                row.node_id, row.host, row.port = self._find(message.key_type, key)
            except ApiError as error:
                row.error_code, row.error_message = error.code, error.message or ""
        return response

    def _find(self, key_type: int, key: str) -> tuple[int, str, int]:
        if key_type == TRANSACTION_KEY:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Transactions are not offered: transactional id {key!r} has no coordinator. Use a producer without one.",
            )
        if key_type != GROUP_KEY:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Key type {key_type} has no coordinators here; only groups have them (key type 0)."
            )
        node_id, endpoint = self._coordinator.find(key)
        return node_id, endpoint.host, endpoint.port

    async def describe(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.DescribeGroupsRequest)
        response = admin_pb2.DescribeGroupsResponse()
        found = await self._found(list(dict.fromkeys(message.groups)))
        for index, (group_id, group) in enumerate(found.items(), 1):
            row = response.groups.add(group_id=group_id)
            if isinstance(group, ErrorCode):
                row.error_code = group
            elif group is not None:
                _describe(row, group)
            else:
                row.group_state = State.DEAD.value
                if version_of(message) >= FIRST_WITH_UNKNOWN_GROUPS:
                    row.error_code, row.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
        return response

    async def _found(self, group_ids: Sequence[str]) -> dict[str, Group | ErrorCode | None]:
        """Return each group, the error of its coordinator, or None if it is not known. A shard is asked for many at once."""
        found: dict[str, Group | ErrorCode | None] = dict.fromkeys(group_ids)
        for start in range(0, len(group_ids), GROUPS_AT_ONCE):
            by_shard: dict[Shard, list[str]] = {}
            for group_id in group_ids[start : start + GROUPS_AT_ONCE]:
                try:
                    by_shard.setdefault(self._coordinator.shard_of(group_id), []).append(group_id)
                except ApiError as error:
                    found[group_id] = error.code
            for shard, asked in by_shard.items():
                try:
                    found.update(await shard.ask(dict, partial(offset_jobs.describe, shard, asked)))
                except ApiError as error:
                    found.update(dict.fromkeys(asked, error.code))
            await trio.lowlevel.checkpoint()
        return found

    async def list(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.ListGroupsRequest)
        states = {name.lower() for name in message.states_filter}
        types = {name.lower() for name in message.types_filter}
        response = admin_pb2.ListGroupsResponse()
        for shard in self._coordinator.shards():
            for group in await shard.ask(list, partial(offset_jobs.list_groups, shard)):
                if (states and group.state.value.lower() not in states) or (types and CLASSIC not in types):
                    continue
                response.groups.add(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
        return response

    async def delete(self, message: Message) -> Message:
        assert isinstance(message, admin_pb2.DeleteGroupsRequest)
        response = admin_pb2.DeleteGroupsResponse()
        for index, group_id in enumerate(dict.fromkeys(message.groups_names), 1):
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            try:
                shard = self._coordinator.shard_of(group_id)
                code = await shard.ask(ErrorCode, partial(offset_jobs.delete_group, shard, group_id))
            except ApiError as error:
                code = error.code
            response.results.add(group_id=group_id, error_code=code)
        return response


def _describe(row: admin_pb2.DescribedGroup, group: Group) -> None:
    """Fill the answer about a group. Protocol and metadata are those of a stable group only."""
    is_stable = group.state is State.STABLE
    row.group_state, row.protocol_type = group.state.value, group.protocol_type or ""
    row.protocol_data = group.protocol_name or "" if is_stable else ""
    for member in group.members.values():
        row.members.add(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )


def _named(group_id: str) -> str:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    return group_id


def _header(code: ErrorCode) -> admin_pb2.ResponseHeader:
    return admin_pb2.ResponseHeader(error_code=code, error_message=code.message or None)


def calls(membership: GroupMembership, admin: GroupAdmin) -> Mapping[str, LocalCall]:
    """Calls by method name; JoinGroup, which needs its caller, is `membership.join`."""
    return {
        "SyncGroup": membership.sync,
        "Heartbeat": membership.heartbeat,
        "LeaveGroup": membership.leave,
        "FindCoordinator": admin.find,
        "DescribeGroups": admin.describe,
        "ListGroups": admin.list,
        "DeleteGroups": admin.delete,
    }
