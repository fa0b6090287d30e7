"""The state machine of a group: recorded examples, faults, and a random life that keeps its promises."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraftlab.broker.groups.group import (
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
    Sync,
    SyncAnswer,
    Token,
)
from kraftlab.broker.groups.rebalance import NEW_MEMBER_TIMEOUT_MS, can_commit, step
from kraftlab.common.errors import ErrorCode

RANGE = Protocol("range", b"\x01\x02")
DELAY_MS, SESSION_MS, REBALANCE_MS = 3_000, 30_000, 60_000


class Life:
    """A group and the answers that its clients got."""

    def __init__(self, **limits: int) -> None:
        self.group = Group(group_id="g")
        self.now_ms = 1_000
        self.answers: dict[Token, Answer] = {}
        self.writes = 0
        self._limits = Limits(**limits)
        self._tokens = itertools.count(1)
        self._ids = itertools.count(1)

    def send(self, event: Event) -> None:
        after, answers, must_write = step(self.group, event, self.now_ms, self._limits)
        self.group = after
        self.writes += must_write
        for token, answer in answers:
            assert token not in self.answers, "a request is answered once"
            self.answers[token] = answer

    def join(self, member_id: str = "", protocols: tuple[Protocol, ...] = (RANGE,), **fields: Any) -> Token:
        token = next(self._tokens)
        sent = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, **fields}
        self.send(Join(token=token, member_id=member_id, new_member_id=f"m{next(self._ids)}", protocols=protocols, **sent))
        return token

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> Token:
        token = next(self._tokens)
        self.send(Sync(token=token, member_id=member_id, generation=generation, assignments=assignments or {}, **fields))
        return token

    def beat(self, member_id: str, generation: int, **fields: Any) -> ErrorCode:
        token = next(self._tokens)
        self.send(Heartbeat(token=token, member_id=member_id, generation=generation, **fields))
        answer = self.answers[token]
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error

    def leave(self, *members: Leaver) -> tuple[ErrorCode, ...]:
        token = next(self._tokens)
        self.send(Leave(token=token, members=members))
        answer = self.answers[token]
        assert isinstance(answer, LeaveAnswer)
        return answer.errors

    def wait(self, duration_ms: int) -> None:
        """Let time pass; alarms ring when they are due."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.group.next_alarm_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            before = self.group
            self.send(Alarm())
            assert self.group != before, "an alarm that is due changes the group"
        self.now_ms = end_ms

    def joined(self, token: Token) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, token: Token) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def new_member(self, **fields: Any) -> str:
        """Get an id for a new member."""
        asked = self.joined(self.join(**fields))
        assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
        return asked.member_id

    def alone(self) -> str:
        """Make a stable group of one member."""
        member_id = self.new_member()
        token = self.join(member_id)
        self.wait(DELAY_MS)
        self.sync(member_id, self.joined(token).generation, {member_id: b"\x07"})
        assert self.group.state is State.STABLE
        return member_id

    def pair(self) -> tuple[str, str]:
        """Make a stable group of two members, the leader first."""
        leader, other = self.new_member(), self.new_member()
        tokens = self.join(leader), self.join(other)
        self.wait(2 * DELAY_MS)
        generation = self.joined(tokens[0]).generation
        self.sync(leader, generation, {leader: b"a", other: b"b"})
        self.sync(other, generation)
        assert self.group.state is State.STABLE
        return leader, other


def test_a_member_joins_syncs_and_leaves() -> None:
    life = Life()
    member_id = life.new_member()
    token = life.join(member_id)
    assert token not in life.answers
    life.wait(DELAY_MS)
    assert life.joined(token) == JoinAnswer(
        member_id=member_id,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member_id,
        members=((member_id, None, b"\x01\x02"),),
    )
    assert life.group.state is State.COMPLETING
    assert life.writes == 0
    token = life.sync(member_id, 1, {member_id: b"\x07"}, protocol_type="consumer", protocol_name="range")
    assert life.synced(token) == SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"\x07")
    assert (life.group.state, life.writes) == (State.STABLE, 1)
    assert life.beat(member_id, 1) is ErrorCode.NONE
    assert life.leave(Leaver(member_id)) == (ErrorCode.NONE,)
    assert (life.group.state, life.group.generation, life.writes) == (State.EMPTY, 2, 2)
    assert (life.group.protocol_type, life.group.protocol_name) == ("consumer", None)
    assert life.beat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 100_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_empty_group_refuses(fields: dict[str, Any], error: ErrorCode) -> None:
    life = Life()
    assert life.joined(life.join(**fields)) == JoinAnswer(error=error, member_id=fields.get("member_id", ""))
    assert life.group == Group(group_id="g")


def test_a_stable_group_refuses_other_protocols_also_of_its_members() -> None:
    life = Life()
    member_id = life.alone()
    for fields in ({"protocol_type": "connect"}, {"protocols": (Protocol("sticky", b"x"),)}):
        assert life.joined(life.join(**fields)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    again = life.joined(life.join(member_id, (Protocol("roundrobin", b"x"),)))
    assert again == JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
    assert life.group.state is State.STABLE


def test_sync_group_is_refused_and_repeated() -> None:
    life = Life()
    member_id = life.alone()
    assert life.synced(life.sync(member_id, 1)).assignment == b"\x07"
    assert life.synced(life.sync(member_id, 2)).error is ErrorCode.ILLEGAL_GENERATION
    assert life.synced(life.sync("nobody", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert life.synced(life.sync(member_id, 1, protocol_name="other")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert life.synced(life.sync(member_id, 1, protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_heartbeats_are_refused() -> None:
    life = Life()
    member_id = life.alone()
    assert life.beat(member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert life.beat(member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert life.beat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert life.beat("", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_starts_a_rebalance_and_the_leader_stays() -> None:
    life = Life()
    leader = life.alone()
    other = life.new_member()
    waiting = life.join(other)
    assert life.beat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = life.join(leader)
    assert life.joined(rejoined).generation == life.joined(waiting).generation == 2
    assert len(life.joined(rejoined).members) == 2
    assert life.joined(waiting).members == ()
    early = life.sync(other, 2)
    assert early not in life.answers
    life.sync(leader, 2, {leader: b"a", other: b"b"})
    assert life.synced(early).assignment == b"b"


def test_a_member_that_does_not_join_again_is_left_out() -> None:
    life = Life()
    leader, other = life.pair()
    token = life.join(other, (Protocol("range", b"new"),))
    life.wait(SESSION_MS - 1)
    life.beat(leader, 1)
    life.wait(REBALANCE_MS - SESSION_MS + 1)
    assert life.joined(token).leader == other
    assert list(life.group.members) == [other]


def test_a_session_that_ends_starts_a_rebalance() -> None:
    life = Life()
    leader, other = life.pair()
    for _ in range(4):
        life.wait(SESSION_MS // 3)
        code = life.beat(leader, 1)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    assert other not in life.group.members


def test_a_member_that_never_syncs_is_removed() -> None:
    life = Life(session_max_ms=10**9)
    leader, other = life.new_member(session_timeout_ms=10**8), life.new_member(session_timeout_ms=10**8)
    tokens = [life.join(each, session_timeout_ms=10**8) for each in (leader, other)]
    life.wait(2 * DELAY_MS)
    waiting = life.sync(other, life.joined(tokens[1]).generation)
    life.wait(REBALANCE_MS)
    assert life.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in life.group.members
    assert life.group.state is State.PREPARING


def test_the_first_rebalance_waits_longer_while_members_arrive() -> None:
    life = Life()
    first = life.join(life.new_member())
    life.wait(DELAY_MS - 1)
    second = life.join(life.new_member())
    life.wait(DELAY_MS)
    assert first not in life.answers
    life.wait(1)
    assert life.joined(first).generation == life.joined(second).generation == 1
    assert len(life.group.members) == 2


def test_a_follower_that_repeats_its_join_changes_nothing() -> None:
    life = Life()
    leader, other = life.pair()
    assert life.joined(life.join(other)).leader == leader
    assert life.join(leader) not in life.answers
    assert life.group.state is State.PREPARING


def test_old_clients_join_without_an_id() -> None:
    life = Life()
    token = life.join(needs_id=False)
    life.wait(DELAY_MS)
    assert life.joined(token).generation == 1


def test_a_silent_new_member_is_forgotten_after_five_minutes() -> None:
    life = Life()
    leader = life.alone()
    token = life.join(needs_id=False, rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 10_000):
        life.wait(10_000)
        life.beat(leader, 1)
    assert life.joined(token).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    life = Life()
    life.alone()
    life.new_member()
    life.wait(SESSION_MS - 1)
    assert len(life.group.pending) == 1
    life.beat(next(iter(life.group.members)), 1)
    life.wait(1)
    assert not life.group.pending
    assert life.group.state is State.STABLE


def test_a_full_group_refuses_and_keeps_its_members() -> None:
    life = Life(size_max=1)
    member_id = life.alone()
    assert life.joined(life.join()) == JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert life.beat(member_id, 1) is ErrorCode.NONE


def test_a_static_member_takes_its_place_without_a_rebalance() -> None:
    life = Life()
    token = life.join(instance_id="i1")
    life.wait(DELAY_MS)
    old = life.joined(token).member_id
    life.sync(old, 1, {old: b"\x07"}, instance_id="i1")
    taken = life.joined(life.join(instance_id="i1"))
    assert (taken.generation, taken.leader, taken.skip_assignment) == (1, taken.member_id, True)
    assert taken.members == ((taken.member_id, "i1", b"\x01\x02"),)
    assert life.writes == 2
    assert life.beat(old, 1, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert life.beat(taken.member_id, 1, instance_id="i1") is ErrorCode.NONE
    assert life.beat(taken.member_id, 1, instance_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert life.joined(life.join("nobody", instance_id="i1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert life.synced(life.sync(taken.member_id, 1, instance_id="i1")).assignment == b"\x07"
    assert life.leave(Leaver("", "i1")) == (ErrorCode.NONE,)
    assert life.leave(Leaver("", "i1")) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert life.group.state is State.EMPTY


def test_an_older_client_that_takes_the_leaders_place_does_not_assign() -> None:
    life = Life()
    token = life.join(instance_id="i1")
    life.wait(DELAY_MS)
    old = life.joined(token).member_id
    life.sync(old, 1, {old: b"\x07"}, instance_id="i1")
    taken = life.joined(life.join(instance_id="i1", can_skip_assignment=False))
    assert (taken.leader, taken.members) == (old, ())


def test_a_static_member_that_stays_away_keeps_its_place_for_its_session() -> None:
    life = Life()
    tokens = [life.join(instance_id=name) for name in ("i1", "i2")]
    life.wait(2 * DELAY_MS)
    leader, other = (life.joined(token).member_id for token in tokens)
    life.sync(leader, 1, {leader: b"a", other: b"b"}, instance_id="i1")
    life.sync(other, 1, instance_id="i2")
    life.wait(SESSION_MS - 1)
    assert other in life.group.members
    life.wait(1)
    assert life.group.state is State.EMPTY


def test_each_leaver_is_answered() -> None:
    life = Life()
    member_id = life.alone()
    assert life.leave(Leaver("nobody"), Leaver("nobody", "no-instance")) == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2
    assert life.leave(Leaver(member_id), Leaver(member_id)) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert life.leave() == ()


def test_only_members_of_the_present_generation_commit() -> None:
    life = Life()
    member_id = life.alone()

    def commit(member_id: str, generation: int) -> ErrorCode:
        return can_commit(life.group, member_id, None, generation, without_group=ErrorCode.GROUP_ID_NOT_FOUND)

    assert commit(member_id, 1) is ErrorCode.NONE
    assert commit(member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    life.join(member_id, (Protocol("range", b"\x05"),))
    assert commit(member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert can_commit(None, "", None, -1, without_group=ErrorCode.ILLEGAL_GENERATION) is ErrorCode.NONE
    assert can_commit(None, "m", None, 3, without_group=ErrorCode.ILLEGAL_GENERATION) is ErrorCode.ILLEGAL_GENERATION


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    life = Life()
    a, b = Protocol("a", b""), Protocol("b", b"")
    tokens = [life.join(life.new_member(protocols=protocols), protocols) for protocols in ((a, b), (b, a), (b, a))]
    life.wait(3 * DELAY_MS)
    assert life.joined(tokens[0]).protocol_name == "b"


# --- a random life ----------------------------------------------------------------------------------------------------------

INSTANCES = (None, None, "i1", "i2")
PROTOCOLS = ((RANGE,), (RANGE, Protocol("sticky", b"s")), (Protocol("sticky", b"t"), RANGE))


class RandomLife(RuleBasedStateMachine):
    """Clients in any order, right and wrong ones. The invariants are those that clients rely on."""

    @initialize(size_max=st.sampled_from((2, 100)), delay_ms=st.sampled_from((0, DELAY_MS)))
    def begin(self, size_max: int, delay_ms: int) -> None:
        self.life = Life(size_max=size_max, initial_delay_ms=delay_ms)
        self.waiting: dict[Token, int] = {}
        """Requests without an answer → time at which they must have one."""
        self.generation = 0
        self.leaders: dict[int, str] = {}
        self.assigned: dict[str, bytes] = {}

    def _member(self, data: st.DataObject) -> Member | None:
        return data.draw(st.sampled_from((*self.life.group.members.values(), None)))

    def _sent(self, token: Token) -> None:
        bound_ms = self.life.now_ms + 4 * (REBALANCE_MS + SESSION_MS) + NEW_MEMBER_TIMEOUT_MS
        if token not in self.life.answers:
            self.waiting[token] = bound_ms

    @rule(data=st.data(), instance=st.sampled_from(INSTANCES), protocols=st.sampled_from(PROTOCOLS), is_old=st.booleans())
    def join_new(self, data: st.DataObject, instance: str | None, protocols: tuple[Protocol, ...], is_old: bool) -> None:
        self._sent(self.life.join("", protocols, instance_id=instance, needs_id=not is_old, can_skip_assignment=not is_old))

    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def join_with_id(self, data: st.DataObject, protocols: tuple[Protocol, ...]) -> None:
        known = [(each.member_id, each.instance_id) for each in self.life.group.members.values()]
        choices = (*known, *((each, None) for each in self.life.group.pending), ("nobody", None))
        member_id, instance = data.draw(st.sampled_from(choices))
        self._sent(self.life.join(member_id, protocols, instance_id=instance))

    @rule(data=st.data(), off_by=st.sampled_from((0, 0, 0, 1)))
    def sync(self, data: st.DataObject, off_by: int) -> None:
        group, member = self.life.group, self._member(data)
        if member is None:
            return
        is_assigning = group.state is State.COMPLETING and member.member_id == group.leader and not off_by
        assignments = {each: f"{each}@{group.generation}".encode() for each in group.members}
        token = self.life.sync(member.member_id, group.generation - off_by, assignments, instance_id=member.instance_id)
        if is_assigning:
            self.assigned = assignments
        self._sent(token)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member = self._member(data)
        if member is not None:
            self.life.beat(member.member_id, self.life.group.generation, instance_id=member.instance_id)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self._member(data)
        self.life.leave(Leaver("nobody") if member is None else Leaver(member.member_id, member.instance_id))

    @rule(duration_ms=st.sampled_from((1, DELAY_MS, SESSION_MS, REBALANCE_MS, NEW_MEMBER_TIMEOUT_MS)))
    def wait(self, duration_ms: int) -> None:
        self.life.wait(duration_ms)

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.life.group.generation >= self.generation
        self.generation = self.life.group.generation

    @invariant()
    def a_group_with_a_generation_has_one_leader_among_its_members(self) -> None:
        group = self.life.group
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.leader in group.members
            listing = {
                (answer.generation, answer.member_id)
                for answer in self.life.answers.values()
                if isinstance(answer, JoinAnswer) and answer.members and not answer.skip_assignment
            }
            assert len({generation for generation, _ in listing}) == len(listing)

    @invariant()
    def every_member_of_a_stable_group_has_its_assignment(self) -> None:
        group = self.life.group
        if group.state is State.STABLE:
            assert sorted(each.assignment for each in group.members.values()) == sorted(self.assigned.values())

    @invariant()
    def members_have_a_protocol_in_common(self) -> None:
        group = self.life.group
        if group.state in (State.COMPLETING, State.STABLE):
            assert all(any(each.name == group.protocol_name for each in m.protocols) for m in group.members.values())

    @invariant()
    def instance_ids_are_unique(self) -> None:
        named = [each.instance_id for each in self.life.group.members.values() if each.instance_id is not None]
        assert len(named) == len(set(named))

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        group = self.life.group
        self.waiting = {token: end for token, end in self.waiting.items() if token not in self.life.answers}
        held = set(_tokens(group))
        assert self.waiting.keys() == held, "a request without an answer is in the group, and only such"
        assert all(end_ms > self.life.now_ms for end_ms in self.waiting.values())
        if held:
            assert group.join_deadline_ms is not None or group.sync_deadline_ms is not None
        if group.state is State.EMPTY:
            assert not group.members


def _tokens(group: Group) -> Iterator[Token]:
    for member in group.members.values():
        yield from (token for token in (member.join_token, member.sync_token) if token is not None)


TestRandomLife = RandomLife.TestCase
TestRandomLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
