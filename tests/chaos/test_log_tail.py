"""The committed log as it is followed: only what is committed, in one chain, or it is said what is wrong."""

from __future__ import annotations

import msgspec
import pytest

from jepsen_lite.worlds.log_tail import LogTail
from kraftlab.metadata import codec
from kraftlab.metadata.records import RequestOutcome
from kraftlab.quorum.core.batch import encode
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.messages import Diverging, FetchRequest, FetchResponse, LeaderView, Records, SnapshotRequired


class Controller:
    """Stands for the connection to one: answers from what `log` has, as far as `high_watermark` says."""

    def __init__(self):
        self.log, self.high_watermark, self.outcome, self.error = [], 0, None, ErrorCode.NONE
        self.crc = 0

    def append(self, epoch, *, count=1, previous_crc=None):
        end = self.log[-1][1] if self.log else 0
        records = [outcome(end + number) for number in range(count)]
        data, crc = encode(
            codec.encode(records)[0],
            base_offset=end,
            epoch=epoch,
            record_count=count,
            append_time_ms=1_000,
            high_watermark=0,
            previous_crc=self.crc if previous_crc is None else previous_crc,
        )
        self.log.append((end, end + count, data))
        self.crc = crc

    def request(self, api, body, timeout_s):
        asked = msgspec.msgpack.decode(body, type=FetchRequest)
        data = b"".join(data for base, _, data in self.log if base >= asked.fetch_offset)
        answer = self.outcome or Records(data)
        return msgspec.msgpack.encode(FetchResponse(self.error, LeaderView(1, asked.epoch), self.high_watermark, 0, 0, answer))

    def close(self):
        pass


def outcome(number):
    return RequestOutcome(0, bytes(16), number, b"", 1_000, b"")


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def tail(controller):
    made = LogTail({}, "a-cluster")
    made._connections = {1: controller}
    return made


def offsets(tail):
    return [entry.offset for entry in tail.log().entries]


def test_it_reads_what_is_committed_and_goes_on_where_it_was(controller, tail):
    controller.append(1, count=2)
    controller.append(1, count=3)
    controller.high_watermark = 4
    assert tail.advance(1, 1) is True
    assert (offsets(tail), tail.end) == ([0, 1], 2)
    assert tail.advance(1, 1) is False
    controller.append(2)
    controller.high_watermark = 6
    assert tail.advance(1, 2) is True
    log = tail.log()
    assert ([entry.offset for entry in log.entries], log.start, log.end, tail.violations) == ([0, 1, 2, 3, 4, 5], 0, 6, [])
    assert log.entries[5].request_id == f"{bytes(16).hex()}:5"


def test_who_does_not_lead_is_not_believed(controller, tail):
    controller.append(1)
    controller.high_watermark, controller.error = 1, ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert tail.advance(1, 1) is False and tail.end == 0


@pytest.mark.parametrize("wrong", [{"epoch": 1}, {"epoch": 2, "previous_crc": 77}], ids=["epoch", "chain"])
def test_a_batch_that_does_not_follow_the_one_before_is_a_violation(controller, tail, wrong):
    controller.append(2)
    controller.high_watermark = 2
    tail.advance(1, 2)
    controller.append(**wrong)
    tail.advance(1, 2)
    assert len(tail.violations) == 1 and "does not follow what was committed before it" in tail.violations[0]


def test_a_later_leader_without_what_was_committed_is_a_violation_and_an_older_one_is_just_behind(controller, tail):
    controller.append(3)
    controller.high_watermark = 1
    tail.advance(1, 3)
    controller.outcome = Diverging(1, 0)
    assert tail.advance(1, 2) is False and tail.violations == []
    tail.advance(1, 4)
    assert "is not in the log of node 1, the leader of epoch 4, which agrees up to 0 at most" in tail.violations[0]


def test_a_log_that_was_cleaned_too_early_begins_at_the_snapshot(controller, tail):
    controller.append(1)
    controller.high_watermark = 1
    tail.advance(1, 1)
    controller.append(1, count=4)
    controller.outcome = SnapshotRequired(5, 1)
    assert tail.advance(1, 1) is True and tail.end == 5
    controller.outcome = None
    controller.append(1)
    controller.high_watermark = 6
    tail.advance(1, 1)
    assert (offsets(tail), tail.log().start, tail.violations) == ([5], 5, [])
