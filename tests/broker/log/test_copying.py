"""A move's copy has the batches of its source, checked, whatever happens to the source meanwhile."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.broker.log.errors import CorruptLog, LogDirFailed, NoSpace
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.moves import copying
from kraftlab.broker.moves.copying import copy_chunk

from .conftest import TOPIC, Broker, batch, failing, full_disk, replica


@pytest.fixture(autouse=True, params=[False, True], ids=["", "with read-ahead"])
def read_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few batches, of which a second thread checks the next one, as it does with large replicas."""
    if request.param:
        for name, size_bytes in (("READ_BYTES", 700), ("RANGE_BYTES", 1000), ("LARGE_BATCH_BYTES", 1)):
            monkeypatch.setattr(copying, name, size_bytes)


def moving(broker: Broker, *batches: bytes) -> tuple[PartitionLog, PartitionLog]:
    manager, log = broker.with_log(*batches)
    return log, manager.create_future(TOPIC, 0, broker.dirs[1])


def copy_all(current: PartitionLog, future: PartitionLog, max_bytes: int = 1000) -> int:
    total = 0
    while True:
        copied, left = copy_chunk(current, future, max_bytes)
        total += copied
        if not left:
            return total


def content(log: PartitionLog) -> bytes:
    return log.read(log.log_start_offset, 1 << 30)


def test_a_copy_has_the_same_batches_epochs_and_marks(broker: Broker) -> None:
    current, future = moving(broker, *(batch(3, value_bytes=200) for _ in range(20)))
    current.append_as_leader(batch(2), 4)
    current.high_watermark = 30
    assert copy_all(current, future) == current.size_bytes
    assert content(future) == content(current)
    assert (future.epochs, future.high_watermark) == (current.epochs, 30)
    assert future.end_offset_for(1) == (1, 60)
    current.start_epoch(9)
    assert copy_chunk(current, future, 1000) == (0, 0)
    assert future.latest_epoch == 9


def test_a_copy_survives_a_crash_without_a_flush(broker: Broker) -> None:
    current, future = moving(broker, *(batch(3, value_bytes=200) for _ in range(20)))
    copy_all(current, future)
    manager = broker.start(replica(broker, 0))
    again = manager.future(TOPIC, 0)
    assert again is not None and content(again) == content(manager.get(TOPIC, 0))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.just("copy"), st.integers(1, 3000)),
            st.tuples(st.just("cut"), st.integers(0, 40)),
            st.tuples(st.just("advance"), st.integers(0, 40)),
            st.tuples(st.just("epoch"), st.integers(1, 3)),
        ),
        max_size=25,
    )
)
def test_the_copy_ends_like_its_source_after_any_changes_of_it(tmp_path_factory, steps: list[tuple[str, int]]) -> None:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    current, future = moving(broker)
    epoch = 1
    for step, number in steps:
        match step:
            case "append":
                current.append_as_leader(batch(number, value_bytes=100), epoch)
            case "copy":
                copy_chunk(current, future, number)
            case "cut":
                current.truncate_to(max(current.log_end_offset - number, current.log_start_offset))
                epoch += 1
            case "advance":
                current.advance_log_start(min(current.log_start_offset + number, current.log_end_offset))
            case "epoch":
                epoch += number
                current.start_epoch(epoch)
    copy_all(current, future)
    assert (future.log_start_offset, future.log_end_offset) == (current.log_start_offset, current.log_end_offset)
    assert content(future) == content(current)
    assert future.epochs == current.epochs
    broker.manager.abandon()


def test_a_damaged_batch_is_not_copied(broker: Broker) -> None:
    current, future = moving(broker, *(batch(value_bytes=400) for _ in range(9)))
    path = current.directory / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptLog, match="crc"):
        copy_chunk(current, future, 10_000)
    assert future.log_end_offset < 5
    assert content(current).startswith(future.read(0, 10_000))


@pytest.mark.parametrize("max_bytes", [100, 10_000])
def test_a_full_target_ends_the_chunk_and_the_rest_is_copied_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    current, future = moving(broker, *(batch(3, value_bytes=200) for _ in range(10)))
    copy_chunk(current, future, 1500)
    before = future.log_end_offset
    with full_disk(monkeypatch, broker.dirs[1]), pytest.raises(NoSpace) as caught:
        copy_chunk(current, future, max_bytes)
    assert caught.value.log_dir == broker.dirs[1]
    assert future.log_end_offset == before
    copy_all(current, future)
    assert content(future) == content(current)


def test_a_full_source_does_not_hold_up_the_copy(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    current, future = moving(broker, *(batch(3, value_bytes=200) for _ in range(10)))
    with full_disk(monkeypatch, broker.dirs[0]):
        with pytest.raises(NoSpace):
            current.append_as_leader(batch(), 1)
        copy_all(current, future)
    assert content(future) == content(current)


def test_an_error_of_the_source_does_not_take_the_target_offline(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    current, future = moving(broker, batch())
    monkeypatch.setattr(os, "preadv", failing(errno.EIO))
    with pytest.raises(LogDirFailed) as caught:
        copy_chunk(current, future, 1000)
    assert caught.value.log_dir == broker.dirs[0]
    monkeypatch.undo()
    assert future.append_as_follower(batch()) == 1


def test_an_error_of_the_target_does_not_take_the_source_offline(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    current, future = moving(broker, batch())
    monkeypatch.setattr(os, "copy_file_range", failing(errno.EIO))
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))
    with pytest.raises(LogDirFailed) as caught:
        copy_chunk(current, future, 1000)
    assert caught.value.log_dir == broker.dirs[1]
    monkeypatch.undo()
    assert current.append_as_leader(batch(), 1)[:2] == (1, 2)


def test_batches_larger_than_a_chunk_are_copied_whole(broker: Broker) -> None:
    current, future = moving(broker, batch(1, value_bytes=3_000_000), batch())
    assert copy_all(current, future, 10) == current.size_bytes
    assert content(future) == content(current)
