"""Files that a person or another program has put among the segments of a log that are trusted: nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.broker.log.errors import DoubtfulLog
from kraftlab.broker.log.partition_log import PartitionLog

from .conftest import TOPIC, Broker, batch, replica

END = 80
OpenLog = Callable[..., PartitionLog]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def filled(open_log: OpenLog, log_start_offset: int = 0) -> PartitionLog:
    """A closed log of four segments or more, without gaps."""
    log = open_log(segment_bytes=3000)
    for _ in range(END // 2):
        log.append_as_leader(batch(2, value_bytes=100), 0)
    log.flush(with_index=True)
    if log_start_offset:
        log.advance_log_start(log_start_offset)
    log.close()
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("base_offset", "count"), [(4, 2), (4, 60), (4, 500), (16, 4), (25, 1)])
def test_a_segment_within_another_leaves_the_log_as_it_is(open_log: OpenLog, clean: bool, base_offset: int, count: int) -> None:
    log = filled(open_log)
    stray = log.directory / f"{base_offset:020d}.log"
    assert not stray.exists(), "no segment begins there"
    stray.write_bytes(batch(count, base_offset=base_offset))
    before = contents(log.directory)
    with pytest.raises(
        DoubtfulLog, match=r"ends: one of the two does not belong there; move that file away and restart the broker"
    ):
        open_log(segment_bytes=3000, clean=clean, recovery_point=END)
    assert contents(log.directory) == before
    stray.unlink()
    assert open_log(segment_bytes=3000, clean=clean, recovery_point=END).digest().end_offset == END


@pytest.mark.parametrize("base_offset", [END + 1, END + 5, 10_000, 2**40, 2**62])
def test_a_segment_above_the_end_at_a_clean_stop_leaves_the_log_as_it_is(open_log: OpenLog, base_offset: int) -> None:
    log = filled(open_log)
    stray = log.directory / f"{base_offset:020d}.log"
    stray.write_bytes(batch(3, base_offset=base_offset))
    before = contents(log.directory)
    with pytest.raises(
        DoubtfulLog, match=rf"{stray.name} begins above offset {END}, where the log ended when the broker stopped"
    ):
        open_log(segment_bytes=3000, clean=True, recovery_point=END)
    assert contents(log.directory) == before
    stray.write_bytes(b"")
    log = open_log(segment_bytes=3000, clean=True, recovery_point=END)
    assert (log.log_end_offset, stray.exists()) == (END, False), "an empty one holds nothing"


def test_a_segment_below_the_log_start_does_not_cost_the_records_above(open_log: OpenLog) -> None:
    """The one that holds the log start would seem to be wholly below it."""
    log = filled(open_log, log_start_offset=13)
    (log.directory / f"{5:020d}.log").write_bytes(batch(1, base_offset=5))
    before = contents(log.directory)
    with pytest.raises(DoubtfulLog, match="begins below offset"):
        open_log(segment_bytes=3000, clean=True, recovery_point=END, log_start_offset=13)
    assert contents(log.directory) == before


def test_the_other_logs_of_the_directory_are_served_and_the_log_comes_back_with_the_next_start(broker: Broker) -> None:
    manager, log = broker.with_log(*(batch() for _ in range(3)))
    stray = log.directory / f"{100:020d}.log"
    manager.close(broker_epoch=4)
    stray.write_bytes(batch(1, base_offset=100))
    manager = broker.start(replica(broker, 0))
    assert manager.get(TOPIC, 0) is None and not manager.offline_dirs
    assert manager.in_doubt() == {(TOPIC, 0)}
    [kept] = manager.describe()[0].kept
    assert (kept.log_end_offset, str(stray) in kept.doubt) == (3, True)
    manager.close(broker_epoch=5)
    manager = broker.start(replica(broker, 0))
    assert manager.get(TOPIC, 0) is None and manager.previous_broker_epoch == -1
    manager.close(broker_epoch=6)
    stray.unlink()
    found = broker.start(replica(broker, 0)).get(TOPIC, 0)
    assert found is not None and (found.log_end_offset, found.high_watermark) == (3, 0)


def test_a_replica_is_filled_again_and_its_doubtful_directory_is_kept(broker: Broker) -> None:
    manager, log = broker.with_log(*(batch() for _ in range(3)))
    manager.close()
    (log.directory / f"{100:020d}.log").write_bytes(batch(1, base_offset=100))
    manager = broker.start(replica(broker, 0))
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0], can_be_filled=True).log_end_offset == 0
    [stray] = manager.describe()[0].strays
    assert (stray.log_end_offset, len(list(stray.path.glob("*.log")))) == (3, 2)
    assert not manager.in_doubt()
    manager.close()
    broker.start(replica(broker, 0))
    assert broker.manager is not None
    [stray] = broker.manager.describe()[0].strays
    assert stray.log_end_offset == 101, "what is on the disk"
