"""Every kind of damage to every kind of file of a log directory, on the code that a broker starts with."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftlab.broker.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, PARTITION_METADATA, RECOVERY_POINTS
from kraftlab.broker.log.errors import CorruptLog, ReplicaConflict, ReplicaOffline
from kraftlab.broker.log.log_dir import CLEAN_SHUTDOWN, LOCK
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.records.record_batch import Record, build_batch

from .conftest import OTHER, TOPIC, Broker

BATCHES = 12
FIRST, LAST = "00000000000000000000", "00000000000000000010"
"""The first and the last of three segments, of five batches each."""


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def deleted(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def foreign(file: Path) -> None:
    file.write_bytes(b"\xffthis is a file of another program\n" * 5)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "notes").write_text("of a person")


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_loop_of_links(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def a_socket(file: Path) -> None:
    file.unlink()
    with contextlib.chdir(file.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(file.name)


def gigantic(file: Path) -> None:
    os.truncate(file, 100 << 30)


DAMAGES = (emptied, zeroed, deleted, cut, foreign)
ODD_THINGS = (a_directory, a_fifo, a_socket, a_loop_of_links)


class Start(NamedTuple):
    """A start after damage: the manager, and the replica's log if it has one."""

    manager: LogManager
    log: PartitionLog | None
    damage: Callable[[Path], None]
    was_clean: bool


def numbered(sequence: int) -> bytes:
    return build_batch([Record(b"key", b"v" * 300, 1000 + sequence)], producer_id=7, producer_epoch=0, base_sequence=sequence)


def filled(broker: Broker, clean: bool) -> None:
    """Stop a broker whose log t-0 has three segments, all flushed, and a checkpoint of each kind."""
    manager = broker.start()
    log = manager.get_or_create("t", TOPIC, 0, broker.ids[0])
    for sequence in range(BATCHES):
        log.append_as_leader(numbered(sequence), 1 + sequence // 4)
    log.high_watermark = BATCHES
    log.advance_log_start(1)
    log.flush(with_index=True)
    other = manager.get_or_create("u", OTHER, 0, broker.ids[0])
    other.append_as_leader(numbered(0), 1)
    other.flush()
    log.write_producers()
    manager.write_checkpoints()
    if clean:
        manager.close(broker_epoch=5)
    else:
        manager.abandon()


def has_everything(start: Start) -> None:
    """Nothing is missing: records, epochs, producers."""
    log = start.log
    assert log is not None
    assert (log.log_end_offset, len(log.epochs), log.digest().end_offset) == (BATCHES, 3, BATCHES)
    assert log.append_as_leader(numbered(BATCHES - 1), 3).base_offset == BATCHES - 1, "a duplicate is known as one"
    assert start.manager.previous_broker_epoch == (5 if start.was_clean else -1)


def has_deleted_records_again(start: Start) -> None:
    has_everything(start)
    assert start.log is not None and start.log.log_start_offset == 0


def has_no_high_watermark(start: Start) -> None:
    has_everything(start)
    assert start.log is not None and start.log.high_watermark == 1, "it rises again with the leader's"


def has_crashed(start: Start) -> None:
    """It has everything and claims nothing: it stays out of the ISR until it has caught up."""
    has_everything(start._replace(was_clean=False))


def is_in_doubt(start: Start) -> None:
    assert start.log is None and not start.manager.offline_dirs
    with pytest.raises(ReplicaOffline, match=r"partition\.metadata"):
        start.manager.get_or_create("t", TOPIC, 0, start.manager.directory_ids()[start.manager.log_dirs[0]])
    [kept] = start.manager.describe()[0].kept
    assert (kept.path.name, kept.log_end_offset) == ("t-0", BATCHES)


def is_doubtful(start: Start, *, says: str) -> None:
    """Only this log is offline, and its files stay as they are."""
    assert start.log is None and not start.manager.offline_dirs
    [kept] = start.manager.describe()[0].kept
    assert (kept.path.name, kept.log_end_offset) == ("t-0", BATCHES)
    assert says in kept.doubt and "restart the broker" in kept.doubt
    with pytest.raises(ReplicaOffline, match="restart the broker"):
        start.manager.get_or_create("t", TOPIC, 0, start.manager.directory_ids()[start.manager.log_dirs[0]])
    with pytest.raises(ReplicaConflict, match="cannot be served"):
        start.manager.promote_copy(kept.path, AssignedReplica("t", TOPIC, 0, kept.path.parent.name.encode()), 9)
    other = start.manager.get(OTHER, 0)
    assert other is not None and other.append_as_leader(numbered(1), 9).base_offset == 1, "the rest serves"
    assert start.manager.previous_broker_epoch == -1


def is_offline(start: Start) -> None:
    assert start.log is None and list(start.manager.offline_dirs) == [start.manager.log_dirs[0]]
    with pytest.raises(ReplicaOffline, match="offline log directory"):
        start.manager.get_or_create("t", TOPIC, 0, is_counted_on=True)


def is_locked(start: Start) -> None:
    if start.damage in ODD_THINGS:
        is_offline(start)
        assert f"{LOCK} is " in start.manager.offline_dirs[start.manager.log_dirs[0]]
    else:
        has_everything(start)


def has_what_follows(start: Start) -> None:
    """The segments after a damaged one stay, and readers of the damaged one get an error."""
    if start.damage in ODD_THINGS:
        is_doubtful(start, says=f"t-0/{FIRST}.log is ")
        return
    log = start.log
    assert log is not None and (log.log_end_offset, len(log.epochs)) == (BATCHES, 2 if start.damage is deleted else 3)
    assert log.read(5, 10_000), "the next segment is read"
    if start.damage in (zeroed, cut, foreign):
        with pytest.raises(CorruptLog):
            log.digest()
    if start.damage is deleted:
        assert log.log_start_offset == 5


def has_what_was_before(start: Start) -> None:
    """The end is missing. The broker claims nothing, so replicas that have it lead."""
    if start.damage in ODD_THINGS:
        is_doubtful(start, says=f"t-0/{LAST}.log is ")
        return
    assert start.log is not None and 10 <= start.log.log_end_offset < BATCHES
    assert start.manager.previous_broker_epoch == -1


OUTCOMES: dict[str, Callable[[Start], None]] = {
    "meta.properties": is_offline,
    RECOVERY_POINTS: has_everything,
    HIGH_WATERMARKS: has_no_high_watermark,
    LOG_START_OFFSETS: has_deleted_records_again,
    CLEAN_SHUTDOWN: has_crashed,
    f"t-0/{PARTITION_METADATA}": is_in_doubt,
    "t-0/leader-epoch-checkpoint": has_everything,
    f"t-0/{FIRST}.timeindex": has_everything,
    f"t-0/{FIRST}.index": has_everything,
    f"t-0/{LAST}.index": has_everything,
    f"t-0/{LAST}.log.deleted": has_everything,
    f"t-0/{FIRST}.index.tmp": has_everything,
    "t-0/leader-epoch-checkpoint.tmp": has_everything,
    f"{HIGH_WATERMARKS}.tmp": has_everything,
    f"{CLEAN_SHUTDOWN}.tmp": has_everything,
    LOCK: is_locked,
    f"t-0/{LAST}.snapshot": has_everything,
    f"t-0/{FIRST}.log": has_what_follows,
    f"t-0/{LAST}.log": has_what_was_before,
}


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_damage_of_a_file(tmp_path: Path, name: str, clean: bool) -> None:
    logging.getLogger("kraftlab").setLevel(logging.CRITICAL)
    try:
        for damage in (*DAMAGES, *ODD_THINGS, *(() if name.endswith((".log", "index")) else (gigantic,))):
            broker = Broker(tmp_path / damage.__name__)
            filled(broker, clean)
            file = broker.dirs[0] / name
            if name == CLEAN_SHUTDOWN and not clean:
                continue
            file.touch()
            damage(file)
            manager = broker.start(
                AssignedReplica("t", TOPIC, 0, broker.ids[0], is_counted_on=True, has_changed=True),
                AssignedReplica("u", OTHER, 0, broker.ids[0], is_counted_on=True, has_changed=True),
            )
            OUTCOMES[name](Start(manager, manager.get(TOPIC, 0), damage, clean))
            manager.abandon() if damage in DAMAGES else manager.close(broker_epoch=6)
    finally:
        logging.getLogger("kraftlab").setLevel(logging.NOTSET)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_a_directory_that_is_missing_is_not_created_empty_where_it_may_lead(broker: Broker, clean: bool) -> None:
    filled(broker, clean)
    shutil.rmtree(broker.dirs[0] / "t-0")
    replica = AssignedReplica("t", TOPIC, 0, broker.ids[0], is_counted_on=True, has_changed=True)
    for _ in range(2):
        manager = broker.start(replica)
        with pytest.raises(ReplicaOffline, match="its directory is missing, and it had records"):
            manager.get_or_create("t", TOPIC, 0, broker.ids[0], is_counted_on=True)
        assert manager.previous_broker_epoch == -1
        [missing] = manager.describe()[0].kept
        assert (missing.path, missing.log_end_offset) == (broker.dirs[0] / "t-0", -1)
        assert "move the directory back" in missing.doubt
        manager.abandon()
    manager = broker.start(replica)
    assert manager.get_or_create("t", TOPIC, 0, broker.ids[0], can_be_filled=True).log_end_offset == 0
