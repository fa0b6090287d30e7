"""The tail of the committed log: it has only committed batches, in one chain, and otherwise names the violation."""

from __future__ import annotations

import msgspec
import pytest

from jepsen_lite.worlds.log_tail import LogTail
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.records import RequestOutcome
from kraftlab.quorum.core.batch import encode
from kraftlab.quorum.core.messages import Diverging, FetchRequest, FetchResponse, LeaderView, Records, SnapshotRequired
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES
from kraftlab.wire.frames import FrameError


class Controller:
    """A connection to a controller. It answers from `log` up to `high_watermark` if it `leads` in the epoch of the request; None:
    it leads in any epoch.
    """

    def __init__(self):
        self.log, self.high_watermark, self.outcome = [], 0, None
        self.leads, self.view, self.is_dead = None, LeaderView(0), False
        self.asked = []
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
        if self.is_dead:
            raise ConnectionRefusedError
        self.asked.append((asked.epoch, asked.fetch_offset))
        if self.leads not in (None, asked.epoch):
            answer = FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, self.view, -1, 0, 0, Records(b""))
            return msgspec.msgpack.encode(answer)
        data = b"".join(data for base, _, data in self.log if base >= asked.fetch_offset)
        answer = self.outcome or Records(data)
        return msgspec.msgpack.encode(
            FetchResponse(ErrorCode.NONE, LeaderView(asked.epoch, 1), self.high_watermark, 0, 0, answer)
        )

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
    made.connections = {1: controller}
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


def test_another_protocol_on_the_port_of_a_node_is_not_an_answer(controller, tail, monkeypatch):
    monkeypatch.setattr(controller, "request", lambda *_: (_ for _ in ()).throw(FrameError("no frame")))
    assert not tail.advance(1, 1)


def test_the_end_of_the_log_is_reported_by_the_leader(controller, tail):
    controller.append(1, count=2)
    controller.high_watermark = -1
    tail.advance(1, 1)
    assert tail.ends_at == -1, "a new leader knows of nothing that is committed"
    controller.high_watermark = 2
    tail.advance(1, 1)
    assert tail.ends_at == tail.end == 2
    controller.is_dead, tail.ends_at = True, -1
    tail.advance(1, 1)
    assert tail.ends_at == -1


def test_a_refusal_names_the_leader_which_is_asked_at_once(controller, tail):
    deposed = Controller()
    deposed.leads, deposed.view = 0, LeaderView(7, 1)
    tail.connections[2] = deposed
    controller.append(3, count=2)
    controller.leads, controller.high_watermark = 7, 2
    assert tail.advance(2, 3) is True and offsets(tail) == [0, 1]
    assert (deposed.asked, controller.asked) == ([(3, 0)], [(7, 0)])


def test_a_leader_is_found_without_a_report(controller, tail):
    standby = Controller()
    standby.leads, standby.view = -1, LeaderView(7, 1)
    tail.connections[2] = standby
    controller.append(7)
    controller.leads, controller.view, controller.high_watermark = 7, LeaderView(7, 1), 1
    assert tail.advance() is False and tail.advance() is True


def test_other_nodes_are_asked_in_an_epoch_that_changes_nothing(controller, tail):
    controller.append(7)
    controller.high_watermark = 1
    tail.advance(1, 7)
    other = Controller()
    other.leads, other.view = -1, LeaderView(9, 2)
    tail.connections[2] = other
    controller.is_dead = True
    assert tail.advance() is False and other.asked == [(0, 0)]
    other.leads, other.log, other.high_watermark = 9, controller.log, 1
    tail.advance()
    assert other.asked[1:] == [(9, 1)]


def test_leaders_of_older_epochs_are_not_asked(controller, tail):
    tail.connections[2] = Controller()
    tail.advance(1, 7)
    tail.advance(2, 6)
    assert ([epoch for epoch, _ in controller.asked], tail.connections[2].asked) == ([7, 7], [])


@pytest.mark.parametrize("wrong", [{"epoch": 1}, {"epoch": 2, "previous_crc": 77}], ids=["epoch", "chain"])
def test_a_batch_that_does_not_follow_the_one_before_is_a_violation(controller, tail, wrong):
    controller.append(2)
    controller.high_watermark = 2
    tail.advance(1, 2)
    controller.append(**wrong)
    tail.advance(1, 2)
    assert len(tail.violations) == 1 and "does not follow the log committed before it" in tail.violations[0]


def test_a_later_leader_without_what_was_committed_is_a_violation(controller, tail):
    controller.append(3)
    controller.high_watermark = 1
    tail.advance(1, 3)
    controller.outcome = Diverging(1, 0)
    tail.advance(1, 4)
    assert "is not in the log of node 1, the leader of epoch 4, which agrees only up to 0" in tail.violations[0]


def on_disk(directory, log):
    (directory / "__cluster_metadata-0").mkdir(parents=True)
    data = bytes(HEADER_PAGE_BYTES) + b"".join(data for _, _, data in log) + bytes(64)
    (directory / "__cluster_metadata-0" / f"{log[0][0]:020}.log").write_bytes(data)
    return directory


def behind_a_snapshot(controller, tail, epoch=1):
    """Return a tail that has read one of four batches, and a leader with a snapshot of three."""
    controller.append(1)
    controller.high_watermark = 1
    tail.advance(1, 1)
    for _ in range(3):
        controller.append(1, count=2)
    controller.high_watermark, controller.outcome = 7, SnapshotRequired(5, epoch)


def test_batches_that_a_leader_no_longer_has_are_read_from_disks(controller, tail, tmp_path):
    behind_a_snapshot(controller, tail)
    lacking = on_disk(tmp_path / "lacking", [controller.log[1]])
    tail.disks = [tmp_path / "gone", lacking, on_disk(tmp_path / "whole", controller.log)]
    assert tail.advance(1, 1) is True and tail.end == 5
    controller.outcome = None
    tail.advance(1, 1)
    assert (offsets(tail), tail.log().start, tail.violations) == ([0, 1, 2, 3, 4, 5, 6], 0, [])


@pytest.mark.parametrize("wrong", ["epoch", "chain", "rot", "hole"])
def test_batches_on_a_disk_count_only_if_they_reach_the_snapshot_in_one_chain(controller, tail, tmp_path, wrong):
    behind_a_snapshot(controller, tail, epoch=2 if wrong == "epoch" else 1)
    log = list(controller.log)
    if wrong == "chain":
        stranger = Controller()
        stranger.crc = 77
        for count in (1, 1, 1, 2):
            stranger.append(1, count=count)
        log = stranger.log
    elif wrong == "rot":
        base, end, data = log[2]
        log[2] = base, end, data[:-1] + bytes([data[-1] ^ 1])
    elif wrong == "hole":
        del log[1]
    tail.disks = [on_disk(tmp_path / "disk", log)]
    assert tail.advance(1, 1) is True and (tail.end, tail.log().start) == (5, 5)


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
