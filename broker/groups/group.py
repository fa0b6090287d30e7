"""One classic consumer group as a value: members, states, and the events and answers of its state machine (`rebalance.py`).

A group is in one of these states:

| state | meaning | next |
| --- | --- | --- |
| Empty | no members; committed offsets may be left | PreparingRebalance, Dead |
| PreparingRebalance | waits for JoinGroup of all members, or for the rebalance timeout | CompletingRebalance, Empty |
| CompletingRebalance | a generation has begun; waits for the leader's SyncGroup | Stable, PreparingRebalance |
| Stable | every member has its assignment | PreparingRebalance |
| Dead | deleted; a group in this state is not kept | |

Each time at which something happens without a request is a field of the group or of a member: the end of a session, of a
rebalance, of the wait for SyncGroup. So there are no timers beside the group, and none can be left over.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from kraftlab.common.errors import ErrorCode

Token = int
"""Number of a request that waits for its answer."""
CONSUMER = "consumer"
"""Protocol type of consumers, whose metadata the coordinator can read."""


class State(enum.Enum):
    """Values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
    State.DEAD: frozenset(),
}
"""State → states that may follow."""


class Protocol(NamedTuple):
    """A way to assign partitions that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member. `instance_id`: set for a static member (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the order of the member's preference."""
    assignment: bytes = b""
    expires_at_ms: int
    """End of the session; it does not count while a known member waits for an answer."""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """True until the answer to the first JoinGroup: the member cannot send heartbeats before."""
    has_synced: bool = False
    """True if SyncGroup was sent in this generation."""

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol, b"" without one."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    @property
    def session_end_ms(self) -> int | None:
        """End of the session, None while the coordinator owes the member an answer."""
        is_owed = self.sync_token is not None or (self.join_token is not None and not self.is_new)
        return None if is_owed else self.expires_at_ms


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group. Its mappings are never changed in place."""

    group_id: str
    state: State = State.EMPTY
    since_ms: int = 0
    """Time at which the present state began."""
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = {}
    pending: Mapping[str, int] = {}
    """Member ids that were given out (KIP-394) and not used yet → end of the session."""
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    initial_left_ms: int | None = None
    """In the first rebalance of an empty group: time by which the delay can still be extended. None in later rebalances."""
    has_grown: bool = False
    """True if a member was added since the delay began."""

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(member.join_token is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member(self, instance_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def next_alarm_ms(self) -> int | None:
        """Earliest time at which something happens without a request."""
        return min(self._alarms(), default=None)

    def _alarms(self) -> Iterator[int]:
        yield from self.pending.values()
        ends = (self.join_deadline_ms, self.sync_deadline_ms, *(member.session_end_ms for member in self.members.values()))
        yield from (each for each in ends if each is not None)

    def __repr__(self) -> str:
        return f"{self.group_id} {self.state.value} generation {self.generation} with {len(self.members)} members"


# --- events -----------------------------------------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """JoinGroup. `new_member_id`: the id for a member that has none."""

    token: Token
    member_id: str = ""
    new_member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str = CONSUMER
    protocols: tuple[Protocol, ...]
    needs_id: bool = True
    """True if a new dynamic member has to join again with its id (KIP-394, from version 4 on)."""
    can_skip_assignment: bool = True
    """True if the client knows `skip_assignment` (KIP-814, from version 9 on)."""


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """SyncGroup. Protocol type and name are None in older versions."""

    token: Token
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    member_id: str
    instance_id: str | None = None
    generation: int


class Leaver(NamedTuple):
    """One member of a LeaveGroup. A static member can be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    members: tuple[Leaver, ...]


class Alarm(msgspec.Struct, frozen=True):
    """Time has passed."""


Event = Join | Sync | Heartbeat | Leave | Alarm


# --- answers ----------------------------------------------------------------------------------------------------------------


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to JoinGroup. `members`: for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Member id, instance id and metadata of each member."""


class SyncAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """Answer to Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


class LeaveAnswer(msgspec.Struct, frozen=True):
    """Answer to LeaveGroup: one code for each named member."""

    errors: tuple[ErrorCode, ...]


Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer


class Limits(NamedTuple):
    """Limits from the broker's configuration."""

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    size_max: int = 2**31 - 1
    initial_delay_ms: int = 3_000


class Step(NamedTuple):
    """Outcome of one event. `must_write`: the group's record has to be written before the answers go out."""

    group: Group
    answers: tuple[tuple[Token, Answer], ...] = ()
    must_write: bool = False
