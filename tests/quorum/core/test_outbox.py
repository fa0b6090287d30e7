"""Messages wait until all of their barrier is durable, and keep their order."""

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import Barrier, Outbox
from kraftlab.quorum.core.effects import Reply
from kraftlab.quorum.core.messages import EndQuorumEpochResponse, LeaderView


def reply(correlation: int, election_version: int, append_id: int) -> Reply:
    return Reply(correlation, EndQuorumEpochResponse(ErrorCode.NONE, LeaderView(1)), Barrier(election_version, append_id))


def test_a_message_without_barrier_leaves_at_once() -> None:
    outbox = Outbox()
    assert outbox.put(reply(1, 0, 0))
    assert len(outbox) == 0


def test_a_message_waits_for_both_counters() -> None:
    outbox = Outbox()
    message = reply(1, 2, 3)
    assert not outbox.put(message)
    assert outbox.storage_completed(3) == []
    assert outbox.election_state_stored(1) == []
    assert outbox.election_state_stored(2) == [message]
    assert outbox.put(message)


def test_released_messages_keep_their_order_and_others_stay() -> None:
    outbox = Outbox()
    messages = [reply(1, 0, 2), reply(2, 0, 9), reply(3, 0, 1)]
    assert not any(outbox.put(message) for message in messages)
    assert outbox.storage_completed(5) == [messages[0], messages[2]]
    assert len(outbox) == 1
    assert repr(outbox) == "outbox(es0 a5 held=1)"
