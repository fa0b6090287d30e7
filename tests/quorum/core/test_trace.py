"""The trace of one node, step by step."""

from kraftlab.quorum.core.events import RequestAbandoned, RequestReceived
from kraftlab.quorum.core.messages import FetchRequest
from kraftlab.quorum.trace import TraceWriter


def test_a_caller_that_hangs_up_before_the_answer_is_forgotten(driven, key_of) -> None:
    node = driven()
    node.win()
    node.flush()
    writer = TraceWriter(lambda line: None, node.node, 0)
    end_offset, epoch = node.node.log_end_offset, node.node.epoch
    for correlation in range(1, 100):
        fetch = FetchRequest(epoch, key_of(2), end_offset, epoch, end_offset, 500, 1000)
        for event in (RequestReceived(correlation, key_of(2), fetch), RequestAbandoned(correlation)):
            writer.step(0, event, node.step(event, after_ms=1))
    assert len(writer.inbound) < 2
