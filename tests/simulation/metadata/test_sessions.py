"""M13 judges fences by heartbeats, and by what the controller has learned about a broker's port."""

from __future__ import annotations

from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import BrokerRegistrationChange, NoOp
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.simulation.metadata.sessions import Sessions

HEARD_MS = 1_000


def fenced(*tries: tuple[int, int, bool]) -> str:
    """Return the violation if a broker is fenced 150 ms after a heartbeat and these tries (begin, end, True if refused)."""
    sessions = Sessions(session_timeout_ms=1_200)
    sessions.received(BrokerHeartbeatRequest(7, 3, 0, want_fence=False, want_shutdown=False), 1, HEARD_MS)
    for began_ms, ended_ms, was_refused in tries:
        sessions.tried(7, 1, HEARD_MS + began_ms, HEARD_MS + ended_ms, was_refused)
    batch = CommittedBatch(9, 10, 1, HEARD_MS + 150, b"")
    return sessions.broken_by(batch, [BrokerRegistrationChange(0, 7, 3, fenced=True)])


def test_three_refusals_since_the_heartbeat_explain_a_fence() -> None:
    assert not fenced((1, 2, True), (52, 53, True), (103, 104, True))
    assert "150 ms after a heartbeat" in fenced((1, 2, True), (52, 53, True))
    assert "150 ms after a heartbeat" in fenced((-50, 2, True), (52, 53, True), (103, 104, True))


def test_a_try_that_is_accepted_in_between_does_not_explain_it() -> None:
    assert "150 ms after a heartbeat" in fenced((1, 2, True), (52, 53, False), (103, 104, True))


def test_a_late_result_from_before_the_heartbeat_does_not_count() -> None:
    assert not fenced((-5, 4, False), (1, 2, True), (52, 53, True), (103, 104, True))


def test_a_fence_of_several_batches_may_go_on_after_a_heartbeat() -> None:
    sessions = Sessions(session_timeout_ms=1_200, batch_records_max=1)
    fence = BrokerRegistrationChange(0, 7, 3, fenced=True)
    sessions.received(BrokerHeartbeatRequest(7, 3, 0, want_fence=False, want_shutdown=False), 1, HEARD_MS)
    assert not sessions.broken_by(CommittedBatch(8, 9, 1, HEARD_MS + 1_300, b""), [NoOp(0)])
    sessions.received(BrokerHeartbeatRequest(7, 3, 0, want_fence=False, want_shutdown=False), 1, HEARD_MS + 1_310)
    assert not sessions.broken_by(CommittedBatch(9, 10, 1, HEARD_MS + 1_350, b""), [fence])
