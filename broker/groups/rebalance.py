"""State machine of a classic consumer group: one event, one step. No I/O and no clock.

Theory of operation. A new member gets an id, joins with it, and starts a rebalance. All members send JoinGroup and wait. Once all
have, or the rebalance timeout is over, a new generation begins: the coordinator chooses a protocol that all support, and answers.
The first member leads: its answer lists the members, and its SyncGroup carries the assignment. The other members' SyncGroups wait
for that. From then on heartbeats keep the sessions; a member that leaves or stays silent starts the next rebalance.

An empty group waits for group.initial.rebalance.delay.ms, and again while members arrive, so that many consumers that start
together join one generation.

A static member (KIP-345) that comes back under its instance id takes its own place in a stable group, without a rebalance; its
former member id is fenced. A static member that does not join stays until its session ends.

The group's record is written when it becomes stable or empty, and when a static member takes its place: exactly then a later
coordinator must know it. The caller writes before it answers, and keeps the old group if it cannot write.

Each waiting request is answered at the latest at a deadline of the group. A second request of the same member replaces the first,
which is answered with REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from kraftlab.common.errors import ErrorCode

from .group import (
    NEXT,
    Alarm,
    Answer,
    Event,
    Group,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Limits,
    Member,
    Protocol,
    State,
    Step,
    Sync,
    SyncAnswer,
    Token,
)

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Time that a member without an answer to its first JoinGroup stays, as in Kafka: it cannot send heartbeats yet."""
NO_ID = ""


def step(group: Group, event: Event, now_ms: int, limits: Limits) -> Step:
    """Carry out one event."""
    turn = _Turn(group, now_ms, limits)
    _HANDLERS[type(event)](turn, event)
    return Step(turn.group, tuple(turn.answers), turn.must_write)


def can_commit(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, *, without_group: ErrorCode
) -> ErrorCode:
    """Return the error of an OffsetCommit, NONE if it is allowed. `without_group`: answer to a member whose group is gone.

    A client without a generation commits to a group without members only.
    """
    if group is None:
        return ErrorCode.NONE if generation < 0 else without_group
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not member_id and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = _member_fault(group, member_id, instance_id)
    if fault:
        return fault
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING else ErrorCode.NONE


def touched(group: Group, member_id: str, now_ms: int) -> Group:
    """Return the group with a longer session of a member: a commit counts as a heartbeat."""
    member = group.members.get(member_id)
    return group if member is None else _with_member(group, _beating(member, now_ms))


class _Turn:
    """One event while it is carried out."""

    def __init__(self, group: Group, now_ms: int, limits: Limits) -> None:
        self.group = group
        self.now_ms = now_ms
        self.limits = limits
        self.answers: list[tuple[Token, Answer]] = []
        self.must_write = False

    def set(self, **fields: Any) -> None:
        self.group = replace(self.group, **fields)

    def to(self, state: State, **fields: Any) -> None:
        """Change the state. AssertionError for a change that the table does not have."""
        assert state in NEXT[self.group.state], f"{self.group} cannot become {state.value}"
        self.set(state=state, since_ms=self.now_ms, **fields)

    def put(self, member: Member) -> None:
        self.group = _with_member(self.group, member)

    def answer(self, token: Token | None, answer: Answer) -> None:
        if token is not None:
            self.answers.append((token, answer))


def _with_member(group: Group, member: Member) -> Group:
    return replace(group, members={**group.members, member.member_id: member})


def _beating(member: Member, now_ms: int) -> Member:
    return replace(member, expires_at_ms=now_ms + member.session_timeout_ms)


def _without(entries: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {each: value for each, value in entries.items() if each != key}


def _member_fault(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another process has the instance id; NONE for a member."""
    member = group.members.get(member_id)
    if instance_id is None:
        return ErrorCode.NONE if member is not None else ErrorCode.UNKNOWN_MEMBER_ID
    if member is not None and member.instance_id == instance_id:
        return ErrorCode.NONE
    known = group.static_member(instance_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if known is None else ErrorCode.FENCED_INSTANCE_ID


# --- joining ----------------------------------------------------------------------------------------------------------------


def _join(turn: _Turn, event: Join) -> None:
    group, limits = turn.group, turn.limits
    if not _has_room(group, event.member_id, limits.size_max):
        turn.answer(event.token, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
        _drop(turn, event.member_id)
        _complete_if_all_joined(turn)
        return
    is_used = event.member_id in group.pending and event.instance_id is None
    fault = _join_fault(group, event, limits)
    if not fault and event.member_id != NO_ID and not is_used:
        fault = _member_fault(group, event.member_id, event.instance_id)
    if fault:
        turn.answer(event.token, JoinAnswer(error=fault, member_id=event.member_id))
    elif event.member_id == NO_ID:
        _join_new(turn, event)
    elif is_used:
        _add(turn, event, event.member_id)
    else:
        _join_again(turn, event, group.members[event.member_id])


def _join_fault(group: Group, event: Join, limits: Limits) -> ErrorCode:
    if not limits.session_min_ms <= event.session_timeout_ms <= limits.session_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not _supports(group, event.protocol_type, event.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _has_room(group: Group, member_id: str, size_max: int) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case State.PREPARING:
            joined = sum(each.join_token is not None for each in group.members.values())
            return joined < size_max or (member is not None and member.join_token is not None)
        case State.COMPLETING | State.STABLE:
            return member is not None or len(group.members) < size_max
        case _:
            return True


def _supports(group: Group, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
    """Return True if the group could still choose a protocol that all members have."""
    if group.state is State.EMPTY:
        return bool(protocol_type and protocols)
    common = _common_protocols(group)
    return protocol_type == group.protocol_type and any(common is None or each.name in common for each in protocols)


def _common_protocols(group: Group) -> set[str] | None:
    """Names of the protocols that every member supports; None if there are no members."""
    names = [{each.name for each in member.protocols} for member in group.members.values()]
    return set.intersection(*names) if names else None


def _join_new(turn: _Turn, event: Join) -> None:
    """Give an id to a member without one. A static member joins at once, and takes its place if it has one."""
    known = turn.group.static_member(event.instance_id) if event.instance_id is not None else None
    if known is not None:
        _replace_static(turn, event, known)
    elif event.needs_id and event.instance_id is None:
        turn.set(pending={**turn.group.pending, event.new_member_id: turn.now_ms + event.session_timeout_ms})
        turn.answer(event.token, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id))
    else:
        _add(turn, event, event.new_member_id)


def _add(turn: _Turn, event: Join, member_id: str) -> None:
    group = turn.group
    member = Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        expires_at_ms=turn.now_ms + NEW_MEMBER_TIMEOUT_MS,
        join_token=event.token,
        is_new=True,
    )
    turn.set(
        pending=_without(group.pending, member_id),
        protocol_type=group.protocol_type if group.members else event.protocol_type,
        leader=group.leader if group.members else member_id,
        has_grown=group.initial_left_ms is not None,
    )
    turn.put(member)
    _rebalance(turn)


def _join_again(turn: _Turn, event: Join, member: Member) -> None:
    """Take a known member's JoinGroup: it starts a rebalance, joins one, or repeats a request whose answer was lost."""
    group = turn.group
    is_same = member.protocols == event.protocols
    match group.state:
        case State.COMPLETING if is_same:
            turn.answer(event.token, _joined(group, member, lists_members=member.member_id == group.leader))
        case State.STABLE if is_same and member.member_id != group.leader:
            turn.answer(event.token, _joined(group, member, lists_members=False))
        case State.PREPARING | State.COMPLETING | State.STABLE:
            turn.put(_updated(turn, event, member))
            _rebalance(turn)
        case _:
            turn.answer(event.token, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id))


def _updated(turn: _Turn, event: Join, member: Member) -> Member:
    turn.answer(member.join_token, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    return replace(
        member,
        protocols=event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        join_token=event.token,
    )


def _replace_static(turn: _Turn, event: Join, old: Member) -> None:
    """Let a new process take the place of a static member, under a new member id."""
    group = turn.group
    turn.answer(old.join_token, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
    turn.answer(old.sync_token, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID))
    member = replace(
        old,
        member_id=event.new_member_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        expires_at_ms=turn.now_ms + event.session_timeout_ms,
        join_token=event.token,
        sync_token=None,
    )
    # The member keeps its place in the order of members.
    members = {each.member_id: each for each in (member if known is old else known for known in group.members.values())}
    leads = group.leader == old.member_id
    turn.set(members=members, leader=member.member_id if leads else group.leader)
    if group.state is not State.STABLE or _chosen_protocol(turn.group) != group.protocol_name:
        _rebalance(turn)
        return
    member = replace(member, join_token=None)
    turn.put(member)
    turn.must_write = True
    answer = _joined(turn.group, member, lists_members=leads and event.can_skip_assignment)
    if event.can_skip_assignment:
        answer = replace(answer, skip_assignment=leads)
    elif leads:
        # An older client that reads its own id here would compute an assignment, and the group is stable.
        answer = replace(answer, leader=old.member_id)
    turn.answer(event.token, answer)


def _joined(group: Group, member: Member, *, lists_members: bool) -> JoinAnswer:
    listed = ((each.member_id, each.instance_id, each.metadata(group.protocol_name)) for each in group.members.values())
    return JoinAnswer(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=tuple(listed) if lists_members else (),
    )


# --- rebalances -------------------------------------------------------------------------------------------------------------


def _rebalance(turn: _Turn) -> None:
    """Start a rebalance, or complete the running one if all members have joined."""
    if turn.group.state is State.PREPARING:
        _complete_if_all_joined(turn)
    else:
        _prepare(turn)


def _prepare(turn: _Turn) -> None:
    group, limits = turn.group, turn.limits
    if group.state is State.COMPLETING:
        for member in group.members.values():
            turn.answer(member.sync_token, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        reset = {key: replace(each, sync_token=None, assignment=b"") for key, each in group.members.items()}
        turn.set(members=reset)
    if group.state is State.EMPTY:
        left_ms = max(group.rebalance_timeout_ms - limits.initial_delay_ms, 0)
        deadline_ms = turn.now_ms + limits.initial_delay_ms
        turn.to(State.PREPARING, join_deadline_ms=deadline_ms, initial_left_ms=left_ms, has_grown=False)
        return
    deadline_ms = turn.now_ms + group.rebalance_timeout_ms
    turn.to(State.PREPARING, join_deadline_ms=deadline_ms, sync_deadline_ms=None)
    _complete_if_all_joined(turn)


def _complete_if_all_joined(turn: _Turn) -> None:
    """Complete a rebalance that waits for nobody. The first one of an empty group waits for its delay."""
    group = turn.group
    if group.state is State.PREPARING and group.initial_left_ms is None and group.has_all_joined:
        _complete(turn)


def _complete(turn: _Turn) -> None:
    """Begin the next generation with the members that have joined. Static members that have not stay, too."""
    group = turn.group
    kept = {key: each for key, each in group.members.items() if each.join_token is not None or each.instance_id is not None}
    joined = [each.member_id for each in kept.values() if each.join_token is not None]
    if kept and not joined:
        # Nobody can lead. The sessions of the silent static members end, or one of them joins.
        turn.set(members=kept, join_deadline_ms=turn.now_ms + group.rebalance_timeout_ms, initial_left_ms=None)
        return
    begun = {
        "generation": group.generation + 1,
        "join_deadline_ms": None,
        "initial_left_ms": None,
        "has_grown": False,
    }
    if not kept:
        turn.to(State.EMPTY, members={}, protocol_name=None, leader=None, **begun)
        turn.must_write = True
        return
    leader = group.leader if group.leader in joined else joined[0]
    turn.set(members=kept)
    deadline_ms = turn.now_ms + turn.group.rebalance_timeout_ms
    chosen = _chosen_protocol(turn.group)
    turn.to(State.COMPLETING, protocol_name=chosen, leader=leader, sync_deadline_ms=deadline_ms, **begun)
    members = {}
    for key, member in kept.items():
        turn.answer(member.join_token, _joined(turn.group, member, lists_members=key == leader))
        members[key] = _beating(replace(member, join_token=None, is_new=False, has_synced=False), turn.now_ms)
    turn.set(members=members)


def _chosen_protocol(group: Group) -> str:
    """Protocol that all members support and most of them prefer. Of equals, the one that the first member prefers."""
    common = _common_protocols(group) or set()
    votes: Counter[str] = Counter()
    for member in group.members.values():
        votes[next(each.name for each in member.protocols if each.name in common)] += 1
    first = next(iter(group.members.values()))
    names = [each.name for each in first.protocols if each.name in common]
    return max(names, key=lambda name: votes[name])


# --- assignments and sessions -----------------------------------------------------------------------------------------------


def _sync(turn: _Turn, event: Sync) -> None:
    group = turn.group
    fault = _sync_fault(group, event)
    if fault:
        turn.answer(event.token, SyncAnswer(error=fault))
        return
    member = replace(group.members[event.member_id], has_synced=True)
    if group.state is State.STABLE:
        turn.put(_beating(member, turn.now_ms))
        turn.answer(event.token, _synced(group, member))
    else:
        turn.answer(member.sync_token, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        turn.put(replace(member, sync_token=event.token))
        if event.member_id == group.leader:
            _assign(turn, event.assignments)
    if all(each.has_synced for each in turn.group.members.values()):
        turn.set(sync_deadline_ms=None)


def _sync_fault(group: Group, event: Sync) -> ErrorCode:
    fault = _member_fault(group, event.member_id, event.instance_id)
    if fault:
        return fault
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for sent, known in ((event.protocol_type, group.protocol_type), (event.protocol_name, group.protocol_name)):
        if sent is not None and known is not None and sent != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def _assign(turn: _Turn, assignments: Mapping[str, bytes]) -> None:
    """Give every member its part of the leader's assignment, b"" to a member that the leader left out."""
    members = {}
    for key, member in turn.group.members.items():
        assigned = replace(member, assignment=assignments.get(key, b""), sync_token=None)
        turn.answer(member.sync_token, _synced(turn.group, assigned))
        members[key] = assigned if member.sync_token is None else _beating(assigned, turn.now_ms)
    turn.to(State.STABLE, members=members)
    turn.must_write = True


def _synced(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)


def _heartbeat(turn: _Turn, event: Heartbeat) -> None:
    group = turn.group
    fault = _member_fault(group, event.member_id, event.instance_id)
    if not fault and event.generation != group.generation:
        fault = ErrorCode.ILLEGAL_GENERATION
    if not fault:
        turn.put(_beating(group.members[event.member_id], turn.now_ms))
        fault = ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else fault
    turn.answer(event.token, HeartbeatAnswer(fault))


def _leave(turn: _Turn, event: Leave) -> None:
    before = turn.group
    turn.answer(event.token, LeaveAnswer(tuple(_leave_one(turn, leaver) for leaver in event.members)))
    _close_ranks(turn, before)


def _leave_one(turn: _Turn, leaver: Leaver) -> ErrorCode:
    group, member_id = turn.group, leaver.member_id
    if member_id == NO_ID:
        known = group.static_member(leaver.instance_id) if leaver.instance_id is not None else None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known.member_id
    elif member_id not in group.pending:
        fault = _member_fault(group, member_id, leaver.instance_id)
        if fault:
            return fault
    _drop(turn, member_id)
    return ErrorCode.NONE


def _close_ranks(turn: _Turn, before: Group) -> None:
    """Rebalance if members have gone. If only an unused member id expired, check whether the running rebalance can complete."""
    if len(turn.group.members) < len(before.members):
        _rebalance(turn)
    else:
        _complete_if_all_joined(turn)


def _drop(turn: _Turn, member_id: str) -> None:
    """Take a member, or an id that was given out, from the group. Its waiting requests are answered."""
    group = turn.group
    turn.set(pending=_without(group.pending, member_id))
    member = group.members.get(member_id)
    if member is None:
        return
    turn.answer(member.join_token, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
    turn.answer(member.sync_token, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
    members = _without(group.members, member_id)
    leader = next(iter(members), None) if group.leader == member_id else group.leader
    turn.set(members=members, leader=leader)


# --- time -------------------------------------------------------------------------------------------------------------------


def _alarm(turn: _Turn, event: Alarm) -> None:
    """Carry out all that is due."""
    before, now_ms = turn.group, turn.now_ms
    ended = [key for key, end_ms in before.pending.items() if end_ms <= now_ms]
    ended += [key for key, each in before.members.items() if _is_due(each.session_end_ms, now_ms)]
    for member_id in ended:
        _drop(turn, member_id)
    if ended:
        _close_ranks(turn, before)
    if _is_due(turn.group.join_deadline_ms, now_ms):
        _join_deadline(turn)
    if _is_due(turn.group.sync_deadline_ms, now_ms):
        for member_id in [key for key, each in turn.group.members.items() if not each.has_synced]:
            _drop(turn, member_id)
        _prepare(turn)


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _join_deadline(turn: _Turn) -> None:
    """End the wait for members, or extend the delay of the first rebalance if members arrived during it."""
    left_ms = turn.group.initial_left_ms
    if left_ms and turn.group.has_grown:
        delay_ms = min(turn.limits.initial_delay_ms, left_ms)
        turn.set(join_deadline_ms=turn.now_ms + delay_ms, initial_left_ms=left_ms - delay_ms, has_grown=False)
    else:
        _complete(turn)


_HANDLERS: Mapping[type[Event], Callable[[_Turn, Any], None]] = {
    Join: _join,
    Sync: _sync,
    Heartbeat: _heartbeat,
    Leave: _leave,
    Alarm: _alarm,
}
"""Event → function that carries it out."""
