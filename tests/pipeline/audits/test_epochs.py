"""Leaders' epochs, and where logs differ."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.pipeline.audits.epochs import (
    EpochStart,
    LeaderEpoch,
    LogBatch,
    leader_epochs,
    leader_of,
    log_divergence,
)


def test_an_epoch_ends_where_the_next_begins():
    starts = [
        EpochStart(1, 4, 101, 0, 50, 1000, 1900),
        EpochStart(1, 6, 102, 50, 80, 2000, 2500),
        EpochStart(2, 6, 102, 50, 90, 2000, 2600),
    ]
    assert leader_epochs(starts) == [LeaderEpoch(4, 101, 0, 50, 1000), LeaderEpoch(6, 102, 50, 90, 600)]


def test_a_leader_is_unknown_if_the_beginning_of_its_epoch_is_missing_and_found_in_another_log():
    cleaned = EpochStart(1, 4, None, 30, 50, 1300, 1900)
    assert leader_epochs([cleaned]) == [LeaderEpoch(4, None, 30, 50, 600)]
    assert leader_epochs([cleaned, EpochStart(2, 4, 101, 0, 50, 1000, 1900)]) == [LeaderEpoch(4, 101, 0, 50, 900)]


def test_two_leaders_in_one_epoch_are_two_rows():
    epochs = leader_epochs([EpochStart(1, 4, 101, 0, 50, 1000, 1900), EpochStart(2, 4, 102, 0, 40, 1000, 1900)])
    assert [each.leader for each in epochs] == [101, 102]


def test_each_epoch_of_many_ends_where_the_next_begins():
    starts = [EpochStart(1, epoch, 101, 10 * epoch, 10 * epoch + 15, epoch, epoch) for epoch in range(50_000)]
    epochs = leader_epochs(starts)
    assert all(one.end_offset == other.start_offset for one, other in pairwise(epochs))
    assert epochs[-1].end_offset == starts[-1].end_offset


def batch(controller: int, base: int, last: int, epoch: int = 1, crc: int = 7, last_epoch: int | None = None) -> LogBatch:
    return LogBatch(controller, base, last, epoch, crc, epoch if last_epoch is None else last_epoch)


def test_equal_logs_do_not_differ_and_a_batch_in_only_one_log_is_not_a_difference():
    one = [batch(1, 0, 9), batch(1, 10, 19), batch(1, 20, 29)]
    other = [batch(2, 10, 19)]
    assert log_divergence([*one, *other]) == []


def test_other_bytes_in_one_epoch_must_never_be():
    (found,) = log_divergence([batch(1, 0, 9), batch(2, 0, 9), batch(3, 0, 9, crc=8)])
    assert found.divergence_class == "log_matching"
    assert (found.from_offset, found.to_offset, found.epoch) == (0, 10, 1)
    assert dict(zip(found.controllers, found.crcs, strict=True)) == {1: 7, 2: 7, 3: 8}


def test_the_tail_of_a_deposed_leader_is_allowed_until_it_follows_a_later_one():
    newer = batch(1, 10, 14, epoch=3, crc=1)
    (found,) = log_divergence([newer, batch(2, 10, 19, epoch=2, crc=2)])
    assert (found.divergence_class, found.from_offset, found.to_offset, found.epoch, found.epochs) == (
        "tail",
        10,
        15,
        None,
        (3, 2),
    )
    (found,) = log_divergence([newer, batch(2, 10, 19, epoch=2, crc=2, last_epoch=3)])
    assert found.divergence_class == "log_matching"


def test_batches_that_are_cut_elsewhere_differ_where_they_overlap_and_neighbours_are_one_range():
    found = log_divergence([batch(1, 0, 19, crc=1), batch(2, 0, 9, crc=2), batch(2, 10, 19, crc=3)])
    assert [(each.from_offset, each.to_offset) for each in found] == [(0, 20)]


LOGS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.sampled_from([1, 2, 3])), max_size=6)


@given(st.tuples(LOGS, LOGS, LOGS))
def test_an_offset_is_in_a_range_exactly_if_two_logs_hold_different_batches_there(logs: tuple[Any, ...]):
    batches = []
    for controller, log in enumerate(logs):
        base = 0
        for size, epoch, crc in log:
            batches.append(batch(controller, base, base + size - 1, epoch, crc))
            base += size
    covered = {offset for each in log_divergence(batches) for offset in range(each.from_offset, each.to_offset)}
    at: dict[int, set[tuple[int, ...]]] = {}
    for each in batches:
        for offset in range(each.base_offset, each.last_offset + 1):
            at.setdefault(offset, set()).add(each[1:5])
    assert covered == {offset for offset, kinds in at.items() if len(kinds) > 1}


def test_the_leaders_of_a_recorded_log_are_read_off_the_first_batches_of_its_epochs(recording: Any):
    from kraftlab.pipeline.kraft_log.reader import read_file

    path: Path = recording("00000000000000000000.log")
    data = path.read_bytes()
    leaders = {}
    for entry in read_file(path):
        if entry.leader_epoch not in leaders:
            payload = data[entry.position : entry.position + entry.size_bytes]
            leaders[entry.leader_epoch] = leader_of("kafka", payload)
    assert leaders == {1: 3002, 2: 3001, 3: 3002}
