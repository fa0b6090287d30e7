"""Idempotent producers of a log: the rules of sequences, and that the state follows the log through every change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.log import producer_snapshots, producer_state
from kraftlab.broker.log.errors import CorruptFile, NoSpace, OutOfOrderSequence, ProducerIdInUse, StaleProducerEpoch
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.producer_state import ProducerState
from kraftlab.records.errors import InvalidRecords
from kraftlab.records.record_batch import SEQUENCE_MAX, BatchHeader, Record, build_batch, sequence_after

from .conftest import full_disk

DAY_MS = 86_400_000


def numbered(sequence: int, count: int = 1, producer: int = 7, epoch: int = 0, base_offset: int = 0, size: int = 10) -> bytes:
    """A batch of an idempotent producer."""
    records = [Record(b"key", b"v" * size, 1000 + index) for index in range(count)]
    return build_batch(records, base_offset=base_offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def header(sequence: int, count: int, producer: int, epoch: int, base_offset: int) -> BatchHeader:
    return BatchHeader(base_offset, 100, 0, 0, 0, count - 1, 1000, 1000 + count, producer, epoch, sequence, count)


def known(log: PartitionLog) -> dict[int, tuple[int, tuple[tuple[int, ...], ...]]]:
    """Epoch and newest batches of each producer."""
    return {key: (found.epoch, tuple(map(tuple, found.batches))) for key, found in log.producers.producers.items()}


# --- the rules ------------------------------------------------------------------------------------------------------------------


class Naive(NamedTuple):
    """The rules in their simplest form: all batches of a log, in order."""

    stored: tuple[BatchHeader, ...]

    def outcome(self, new: BatchHeader) -> int | str:
        """The base offset of the duplicate, "append" or the error."""
        own = [batch for batch in self.stored if batch.producer_id == new.producer_id]
        if not own:
            return "append"
        epoch = own[-1].producer_epoch
        newest = [batch for batch in own if batch.producer_epoch == epoch][-5:]
        for batch in newest:
            same = (batch.producer_epoch, batch.base_sequence, batch.record_count)
            if same == (new.producer_epoch, new.base_sequence, new.record_count):
                return batch.base_offset
        if new.producer_epoch < epoch:
            return "stale"
        last = newest[-1]
        follows = (last.base_sequence + last.record_count) % 2**31 if new.producer_epoch == epoch else 0
        return "append" if new.base_sequence == follows else "out of order"


def outcome(state: ProducerState, new: BatchHeader) -> int | str:
    found = state.find_duplicates([new])
    if found:
        return found[0].base_offset
    try:
        state.check(new)
    except StaleProducerEpoch:
        return "stale"
    except OutOfOrderSequence:
        return "out of order"
    return "append"


sequences = st.sampled_from([0, 1, 2, 3, 4, 5, 6, SEQUENCE_MAX - 2, SEQUENCE_MAX - 1, SEQUENCE_MAX])
requests = st.tuples(sequences, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.booleans())


@given(st.lists(requests, max_size=40), st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_duplicates_and_errors_are_those_of_the_naive_twin(wanted: list[tuple[int, int, int, int, bool]], cut: int) -> None:
    state, stored, end = ProducerState(), Naive(()), 0
    for sequence, count, producer, epoch, follows in wanted:
        last = state.producers.get(producer)
        if follows and last is not None:
            sequence, epoch = sequence_after(last.last_sequence, 1), last.epoch
        new = header(sequence, count, producer, epoch, end)
        expected = stored.outcome(new)
        assert outcome(state, new) == expected
        if expected == "append":
            noted = state.noted([new])
            before = dict(state.producers)
            state.update(new, 0)
            state.restore(noted)
            assert dict(state.producers) == before, "an append that failed leaves no trace"
            state.update(new, 0)
            stored, end = Naive((*stored.stored, new)), new.end_offset
    _check_truncation(state, [batch for batch in stored.stored if batch.end_offset <= cut], cut)


def _check_truncation(state: ProducerState, left: list[BatchHeader], cut: int) -> None:
    """A state that took batches back equals one that never had them, but for older batches that it had dropped."""
    if not state.truncate(cut):
        return
    rebuilt = ProducerState()
    for batch in left:
        rebuilt.update(batch, 0)
    assert set(state.producers) == set(rebuilt.producers)
    for producer, found in state.producers.items():
        twin = rebuilt.producers[producer]
        assert found.epoch == twin.epoch
        assert found.batches == twin.batches[-len(found.batches) :]


def test_the_number_of_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 3)
    state = ProducerState()
    for producer, at in ((1, 0), (2, 1), (3, 2), (1, 3), (4, 4)):
        state.update(header(at, 1, producer, 0, at), 0)
    assert set(state.producers) == {3, 1, 4}, "2 was silent for longest"


def test_producers_expire_by_the_time_of_their_last_append_and_open_transactions_do_not() -> None:
    state = ProducerState()
    state.update(header(0, 1, 1, 0, 0), 100)
    state.update(header(0, 1, 2, 0, 1), 200)
    state.update(header(0, 1, 3, 0, 2)._replace(attributes=1 << 4), 50)
    assert state.expire(150) == 1
    assert set(state.producers) == {2, 3}


# --- the log --------------------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_answered_as_the_first_time_and_not_stored_again(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log()
    first = log.append_as_leader(numbered(0, 3), 1)
    assert log.append_as_leader(numbered(3), 1)[:2] == (3, 4)
    again = log.append_as_leader(numbered(0, 3), 2)
    assert (again[:2], again.log_append_time_ms) == (first[:2], 1002)
    assert log.log_end_offset == 4
    with pytest.raises(OutOfOrderSequence, match="the next one is 4"):
        log.append_as_leader(numbered(5), 2)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(numbered(0, 2), 2)


def test_of_the_batches_of_a_request_those_that_are_stored_are_not_stored_again(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log()
    log.append_as_leader(numbered(0), 1)
    request = b"".join(numbered(sequence, 2) for sequence in (1, 3, 5))
    assert log.append_as_leader(request, 1)[:2] == (1, 7)
    assert log.append_as_leader(request, 1)[:2] == (1, 7)
    assert log.append_as_leader(request[: len(request) // 3], 1)[:2] == (1, 3)
    assert log.append_as_leader(numbered(5, 2) + numbered(7, 2), 1)[:2] == (5, 9), "the leader died with a part of the request"
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(numbered(0) + numbered(1), 1)
    for others in (numbered(9) + numbered(11), numbered(9) + numbered(10, producer=8), b"".join(map(numbered, range(9, 15)))):
        with pytest.raises(InvalidRecords):
            log.append_as_leader(others, 1)
    assert log.log_end_offset == 9


def test_of_two_threads_that_send_the_same_batch_one_stores_it(open_log: Callable[..., PartitionLog]) -> None:
    log, places = open_log(), []
    start = threading.Barrier(4)

    def send() -> None:
        for sequence in range(20):
            start.wait()
            places.append(log.append_as_leader(numbered(sequence), 1)[:2])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(places) == sorted([(offset, offset + 1) for offset in range(20)] * 4)
    assert log.log_end_offset == 20


def test_a_first_attempt_does_not_take_the_batch_of_another_producer_for_its_own(open_log: Callable[..., PartitionLog]) -> None:
    """An import brings batches with producer ids that the cluster has yet to hand out."""
    log = open_log()
    log.append_as_leader(numbered(0, producer=5), 1, keep_offsets=True)
    with pytest.raises(ProducerIdInUse):
        log.append_as_leader(numbered(0, producer=5), 1, may_be_stored=False)


def test_an_append_that_fails_leaves_the_producers_as_they_were(
    open_log: Callable[..., PartitionLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(segment_bytes=300)
    for sequence in range(4):
        log.append_as_leader(numbered(sequence, size=50), 1)
    before = known(log)
    with full_disk(monkeypatch, log.directory), pytest.raises(NoSpace):
        log.append_as_leader(numbered(4, size=50), 1)
    assert known(log) == before
    assert log.append_as_leader(numbered(4, size=50), 1)[:2] == (4, 5)


@pytest.mark.parametrize("how", ["clean", "crash", "crash without snapshots", "crash with a damaged snapshot"])
def test_a_restart_keeps_the_producers(open_log: Callable[..., PartitionLog], how: str) -> None:
    log = open_log(segment_bytes=600)
    fill(log)
    before = known(log)
    restart(log, how)
    again = open_log(segment_bytes=600, clean=how == "clean")
    assert known(again) == before
    assert again.append_as_leader(numbered(8, producer=1), 2)[:2] == (16, 17), "a duplicate"


def fill(log: PartitionLog) -> None:
    """Ten batches of each of two producers, taking turns, over several segments."""
    for sequence in range(10):
        for producer in (1, 2):
            log.append_as_leader(numbered(sequence, producer=producer, size=50), 1)
    assert len(list(log.directory.glob("*.log"))) > 3


def restart(log: PartitionLog, how: str) -> None:
    if how == "clean":
        log.flush()
        assert log.write_producers()
    elif how == "crash without snapshots":
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
    elif how == "crash with a damaged snapshot":
        newest = max(log.directory.glob("*.snapshot"))
        newest.write_bytes(newest.read_bytes()[:-1])
    log.close()


@pytest.mark.parametrize("offset", range(0, 21, 3))
def test_a_truncation_takes_batches_back(open_log: Callable[..., PartitionLog], offset: int) -> None:
    log = open_log(segment_bytes=600)
    fill(log)
    log.truncate_to(offset)
    counts = {1: -(-offset // 2), 2: offset // 2}
    assert {key: found.last_sequence + 1 for key, found in log.producers.producers.items()} == {
        key: count for key, count in counts.items() if count
    }
    assert all(at <= log.log_end_offset for at in producer_snapshots.offsets(log.directory))
    # Other records take their place; a crash follows.
    for producer in (1, 2):
        log.append_as_leader(numbered(counts[producer], producer=producer, size=51), 2)
    before = known(log)
    log.close()
    after = known(open_log(segment_bytes=600))
    assert {key: (epoch, batches[-1]) for key, (epoch, batches) in after.items()} == {
        key: (epoch, batches[-1]) for key, (epoch, batches) in before.items()
    }


def test_a_follower_knows_the_producers_of_its_leader(
    open_log: Callable[..., PartitionLog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = open_log(segment_bytes=600)
    fill(leader)
    follower = another_log(tmp_path, leader)
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(leader.read(follower.log_end_offset, 500))
    assert known(follower) == known(leader)
    assert follower.append_as_leader(numbered(9, producer=2), 5)[:2] == (19, 20), "a duplicate"


def another_log(tmp_path: Path, like: PartitionLog) -> PartitionLog:
    directory = tmp_path / "other" / "orders-0"
    directory.mkdir(parents=True)
    options: dict[str, Any] = {"topic": "orders", "partition": 0, "topic_id": like.topic_id, "directory_id": b"o" * 16}
    return PartitionLog.open(directory, config=like.config, **options)


def test_snapshots_go_with_their_segments(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(segment_bytes=600)
    fill(log)
    bases = [int(path.stem) for path in sorted(log.directory.glob("*.log"))]
    assert producer_snapshots.offsets(log.directory) == bases[1:]
    log.high_watermark = log.log_end_offset
    log.advance_log_start(bases[2])
    assert producer_snapshots.offsets(log.directory) == bases[2:]
    before = known(log)
    log.close()
    assert known(open_log(segment_bytes=600)) == before, "producers whose records are deleted stay known"
    log = open_log(segment_bytes=600)
    log.truncate_fully_and_start_at(100)
    assert (producer_snapshots.offsets(log.directory), known(log)) == ([], {})


def test_expired_producers_are_gone_after_a_clean_restart(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log()
    log.append_as_leader(numbered(0), 1)
    restart(log, "clean")
    log = open_log(clean=True)
    assert known(log)
    log.expire_producers(2**62)
    restart(log, "clean")
    assert not known(open_log(clean=True))


# --- snapshot files -------------------------------------------------------------------------------------------------------------


def test_a_snapshot_file_has_kafkas_layout(tmp_path: Path) -> None:
    state = ProducerState()
    state.update(header(5, 3, 4242, 2, 10), 0)
    data = producer_snapshots.encode(state)
    assert data[:2] == b"\0\1", "the version"
    assert data[6:].hex() == (
        "00000001"
        + "0000000000001092"
        + "0002"
        + "00000007"
        + "000000000000000c"
        + "00000002"
        + f"{1003:016x}"
        + "ffffffff"
        + "f" * 16
    )
    again = producer_snapshots.decode(data, tmp_path, 13, 0)
    assert again.find_duplicates([header(5, 3, 4242, 2, 99)])
    for damaged in (data[:-1], data[:5], b"\0\2" + data[2:], data[:-1] + b"\0"):
        with pytest.raises(CorruptFile):
            producer_snapshots.decode(damaged, tmp_path, 13, 0)


@given(st.lists(requests, max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_snapshot_keeps_everything_that_a_duplicate_is_recognised_by(wanted: list[tuple[int, int, int, int, bool]]) -> None:
    state, end = ProducerState(), 0
    for sequence, count, producer, epoch, _ in wanted:
        new = header(sequence, count, producer, epoch, end)
        state.update(new, 0)
        end = new.end_offset
    again = producer_snapshots.decode(producer_snapshots.encode(state), Path("f"), end, 0)
    assert [(key, found.epoch, found.batches) for key, found in again.producers.items()] == [
        (key, found.epoch, found.batches) for key, found in state.producers.items()
    ]
