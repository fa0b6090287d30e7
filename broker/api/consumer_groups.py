"""Calls of consumer groups at their coordinator: from Kafka's requests to the coordinator's jobs, and back.

Membership (JoinGroup to LeaveGroup) goes to the group's state machine, and needs READ on the group. FindCoordinator and
ListGroups are about this broker. Groups that a caller may not see are refused, or left out of lists.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from kraftlab.access import NOT_ASKED
from kraftlab.access.authorizer import Rights
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.gateway.codec import KafkaRequest
from kraftlab.gateway.door import LocalAnswer
from kraftlab.messages.generated.delete_groups_request import DeleteGroupsRequest
from kraftlab.messages.generated.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kraftlab.messages.generated.describe_groups_request import DescribeGroupsRequest
from kraftlab.messages.generated.describe_groups_response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kraftlab.messages.generated.find_coordinator_request import FindCoordinatorRequest
from kraftlab.messages.generated.find_coordinator_response import Coordinator as FoundCoordinator
from kraftlab.messages.generated.find_coordinator_response import FindCoordinatorResponse
from kraftlab.messages.generated.heartbeat_request import HeartbeatRequest
from kraftlab.messages.generated.heartbeat_response import HeartbeatResponse
from kraftlab.messages.generated.join_group_request import JoinGroupRequest
from kraftlab.messages.generated.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from kraftlab.messages.generated.leave_group_request import LeaveGroupRequest
from kraftlab.messages.generated.leave_group_response import LeaveGroupResponse, MemberResponse
from kraftlab.messages.generated.list_groups_request import ListGroupsRequest
from kraftlab.messages.generated.list_groups_response import ListedGroup, ListGroupsResponse
from kraftlab.messages.generated.sync_group_request import SyncGroupRequest
from kraftlab.messages.generated.sync_group_response import SyncGroupResponse
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.rpc.caller import Caller

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
FIRST_WITH_NULL_PROTOCOL = 7
FIRST_WITH_SKIPPED_ASSIGNMENT = 9
FIRST_WITH_PROTOCOL = 5
"""Version of SyncGroup from which on the protocol is required."""
FIRST_WITH_SEVERAL_LEAVERS = 3
FIRST_WITH_SEVERAL_KEYS = 4
FIRST_WITH_UNKNOWN_GROUPS = 6
"""Version of DescribeGroups from which on an unknown group is an error."""
GROUPS_AT_ONCE = 500
"""Number of groups after which other tasks get their turn."""

RightsOf = Callable[[str, str], Rights]
"""Rights of a principal at a host."""


def check_group(rights: Rights, operation: Operation, group_id: str) -> None:
    """Raise ApiError if the caller may not do this to the group."""
    if not rights.allow(operation, ResourceType.GROUP, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


class GroupMembership:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, coordinator: Coordinator, rights: RightsOf) -> None:
        self._coordinator = coordinator
        self._rights = rights

    def _shard(self, group_id: str, caller: Caller) -> Shard:
        """Return the shard of a member's group. ApiError if the caller may not READ it, or it is not coordinated here."""
        check_group(self._rights(caller.principal, caller.host), Operation.READ, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self._coordinator.shard_of(group_id)

    async def join(self, request: KafkaRequest, caller: Caller) -> JoinGroupResponse:
        """Answer when the rebalance is complete."""
        body: JoinGroupRequest = request.body
        version = request.header.version
        name = caller.client_id if body.group_instance_id is None else body.group_instance_id
        try:
            answer = await self._shard(body.group_id, caller).send(
                JoinAnswer,
                body.group_id,
                lambda token: Join(
                    token=token,
                    member_id=body.member_id,
                    new_member_id=f"{name}-{uuid.uuid4()}",
                    instance_id=body.group_instance_id,
                    client_id=caller.client_id,
                    client_host=f"/{caller.host}",
                    session_timeout_ms=body.session_timeout_ms,
                    rebalance_timeout_ms=body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms,
                    protocol_type=body.protocol_type,
                    protocols=tuple(Protocol(each.name, each.metadata) for each in body.protocols),
                    needs_id=version >= FIRST_WITH_MEMBER_ID,
                    can_skip_assignment=version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
                ),
            )
        except ApiError as error:
            answer = JoinAnswer(error=error.code, member_id=body.member_id)
        return JoinGroupResponse(
            error_code=answer.error,
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name if version >= FIRST_WITH_NULL_PROTOCOL else answer.protocol_name or "",
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[JoinGroupResponseMember(*member) for member in answer.members],
        )

    async def sync(self, request: KafkaRequest, caller: Caller) -> SyncGroupResponse:
        """Answer once the leader has sent the assignments."""
        body: SyncGroupRequest = request.body
        if request.header.version >= FIRST_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        shard = self._shard(body.group_id, caller)
        answer = await shard.send(
            SyncAnswer,
            body.group_id,
            lambda token: Sync(
                token=token,
                member_id=body.member_id,
                instance_id=body.group_instance_id,
                generation=body.generation_id,
                protocol_type=body.protocol_type,
                protocol_name=body.protocol_name,
                assignments={each.member_id: each.assignment for each in body.assignments},
            ),
        )
        return SyncGroupResponse(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )

    async def heartbeat(self, request: KafkaRequest, caller: Caller) -> HeartbeatResponse:
        """Keep the member's session. While the group is loaded every heartbeat is good: its sessions begin after that."""
        body: HeartbeatRequest = request.body
        shard = self._shard(body.group_id, caller)
        try:
            answer = await shard.send(
                HeartbeatAnswer,
                body.group_id,
                lambda token: Heartbeat(
                    token=token, member_id=body.member_id, instance_id=body.group_instance_id, generation=body.generation_id
                ),
                waits=False,
            )
        except ApiError as error:
            if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            answer = HeartbeatAnswer()
        return HeartbeatResponse(error_code=answer.error)

    async def leave(self, request: KafkaRequest, caller: Caller) -> LeaveGroupResponse:
        body: LeaveGroupRequest = request.body
        shard = self._shard(body.group_id, caller)
        is_single = request.header.version < FIRST_WITH_SEVERAL_LEAVERS
        leavers = tuple(Leaver(each.member_id, each.group_instance_id) for each in body.members)
        if is_single:
            leavers = (Leaver(body.member_id, None),)
        answer = await shard.send(LeaveAnswer, body.group_id, lambda token: Leave(token=token, members=leavers))
        if is_single:
            return LeaveGroupResponse(error_code=answer.errors[0])
        left = zip(leavers, answer.errors, strict=True)
        return LeaveGroupResponse(members=[MemberResponse(leaver.member_id, leaver.instance_id, code) for leaver, code in left])


class GroupAdmin:
    """FindCoordinator, DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, coordinator: Coordinator, rights: RightsOf) -> None:
        self._coordinator = coordinator
        self._rights = rights

    async def find(self, request: KafkaRequest, caller: Caller) -> FindCoordinatorResponse:
        """Return the brokers that coordinate groups. Requires DESCRIBE on each group."""
        body: FindCoordinatorRequest = request.body
        rights = self._rights(caller.principal, caller.host)
        if request.header.version < FIRST_WITH_SEVERAL_KEYS:
            row = self._find(body.key_type, body.key, rights)
            # "NONE" as in Kafka: older clients show it.
            text = row.error_message if row.error_code else "NONE"
            return FindCoordinatorResponse(0, row.error_code, text, row.node_id, row.host, row.port)
        rows = []
        for index, key in enumerate(body.coordinator_keys, 1):
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            rows.append(self._find(body.key_type, key, rights))
        return FindCoordinatorResponse(coordinators=rows)

    def _find(self, key_type: int, key: str, rights: Rights) -> FoundCoordinator:
        try:
            if key_type == TRANSACTION_KEY:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Transactions are not offered: transactional id {key!r} has no coordinator. Use a producer without one.",
                )
            if key_type != GROUP_KEY:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Key type {key_type} has no coordinators here; only groups have them (key type 0).",
                )
            if key:
                check_group(rights, Operation.DESCRIBE, key)
            node_id, endpoint = self._coordinator.find(key)
        except ApiError as error:
            return FoundCoordinator(key, NO_NODE, "", NO_PORT, error.code, error.message or "")
        return FoundCoordinator(key, node_id, endpoint.host, endpoint.port)

    async def describe(self, request: KafkaRequest, caller: Caller) -> DescribeGroupsResponse:
        """Describe each group once. Requires DESCRIBE on each."""
        body: DescribeGroupsRequest = request.body
        rights = self._rights(caller.principal, caller.host)
        is_unknown_an_error = request.header.version >= FIRST_WITH_UNKNOWN_GROUPS
        asked, refused = _split(body.groups, rights, Operation.DESCRIBE)
        rows = []
        for index, (group_id, group) in enumerate((await self._found(asked)).items(), 1):
            if isinstance(group, ErrorCode):
                rows.append(DescribedGroup(group, group_id=group_id))
            elif group is not None:
                shows = body.include_authorized_operations
                rows.append(_described(group, rights.operations(ResourceType.GROUP, group_id) if shows else NOT_ASKED))
            elif is_unknown_an_error:
                text = f"Group {group_id} not found."
                rows.append(DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, text, group_id, State.DEAD.value))
            else:
                operations = rights.operations(ResourceType.GROUP, group_id) if body.include_authorized_operations else NOT_ASKED
                rows.append(DescribedGroup(0, None, group_id, State.DEAD.value, authorized_operations=operations))
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
        rows.extend(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id) for group_id in refused)
        return DescribeGroupsResponse(groups=rows)

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

    async def list(self, request: KafkaRequest, caller: Caller) -> ListGroupsResponse:
        """List this broker's groups: all with DESCRIBE on the cluster, otherwise those with DESCRIBE on the group."""
        body: ListGroupsRequest = request.body
        rights = self._rights(caller.principal, caller.host)
        sees_all = rights.may_on_cluster(Operation.DESCRIBE)
        states = {name.lower() for name in body.states_filter}
        types = {name.lower() for name in body.types_filter}
        if types and CLASSIC not in types:
            return ListGroupsResponse()
        return ListGroupsResponse(
            groups=[
                ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
                for shard in self._coordinator.shards()
                for group in await shard.ask(list, partial(offset_jobs.list_groups, shard))
                if (not states or group.state.value.lower() in states)
                and (sees_all or rights.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
            ]
        )

    async def delete(self, request: KafkaRequest, caller: Caller) -> DeleteGroupsResponse:
        """Delete each group. Requires DELETE on each."""
        body: DeleteGroupsRequest = request.body
        asked, refused = _split(body.groups_names, self._rights(caller.principal, caller.host), Operation.DELETE)
        rows = []
        for index, group_id in enumerate(asked, 1):
            if not index % GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            try:
                shard = self._coordinator.shard_of(group_id)
                code = await shard.ask(ErrorCode, partial(offset_jobs.delete_group, shard, group_id))
            except ApiError as error:
                code = error.code
            rows.append(DeletableGroupResult(group_id, code))
        rows.extend(DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED) for group_id in refused)
        return DeleteGroupsResponse(results=rows)


def _split(group_ids: Sequence[str], rights: Rights, operation: Operation) -> tuple[list[str], list[str]]:
    """Return the groups to which the caller may do this, and the others, each once in the order of the request."""
    each = list(dict.fromkeys(group_ids))
    may = {group_id: rights.allow(operation, ResourceType.GROUP, group_id) for group_id in each}
    return [group_id for group_id in each if may[group_id]], [group_id for group_id in each if not may[group_id]]


def _described(group: Group, operations: int) -> DescribedGroup:
    """Describe a group. Protocol and metadata are those of a stable group only."""
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if is_stable else "",
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
        authorized_operations=operations,
    )


def calls(coordinator: Coordinator, rights: RightsOf) -> Mapping[str, LocalAnswer]:
    """Handlers by the names of their calls."""
    membership, admin = GroupMembership(coordinator, rights), GroupAdmin(coordinator, rights)
    return {
        "JoinGroup": membership.join,
        "SyncGroup": membership.sync,
        "Heartbeat": membership.heartbeat,
        "LeaveGroup": membership.leave,
        "FindCoordinator": admin.find,
        "DescribeGroups": admin.describe,
        "ListGroups": admin.list,
        "DeleteGroups": admin.delete,
    }
