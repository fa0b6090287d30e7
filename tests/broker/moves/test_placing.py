"""Replicas get their logs: their directories are reported, and configs hold for every log, whether created or found."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.broker.log.errors import NoSpace
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import UNASSIGNED

from ...helpers.waiting import eventually
from ..conftest import batch


async def test_the_directory_of_a_replica_is_reported_that_got_its_log_once_there_was_room(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.add_broker(0)

    def full(*_: object, **__: object) -> None:
        raise NoSpace(broker.dirs[0], 0)

    with monkeypatch.context() as disk:
        disk.setattr(LogManager, "get_or_create", full)
        await world.create_topic("t", [0])
        await trio.sleep(7)
    assert broker.partition("t", 0).log is None
    assert world.state("t", 0).directory_of(0) == UNASSIGNED
    await eventually(lambda: broker.partition("t", 0).log is not None, "there is room")
    lies_in = broker.log("t", 0).directory_id
    await eventually(lambda: world.state("t", 0).directory_of(0) == lies_in, "the controller knows where the replica is")


async def test_limits_of_the_brokers_own_file_hold_for_logs_that_were_there_at_the_start(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0, log_retention_bytes="1234", replica_alter_log_dirs_io_max_bytes_per_second="1")
    await world.create_topic("t", [0])
    broker.configs.move_gate.set_rate(1.0)
    await broker.produce("t", 0, batch(1, 5_000))
    await broker.alter(broker.other_dir())
    assert broker.partition("t", 0).future.config.retention_bytes == 1234
    broker.crash()
    await broker.restart()
    assert broker.log("t", 0).config.retention_bytes == 1234
    assert broker.partition("t", 0).future.config.retention_bytes == 1234


async def test_a_topics_limits_hold_for_a_log_that_nobody_claimed_at_the_start_and_that_is_given_back(
    autojump_clock: Any, world: Any
) -> None:
    broker = await world.add_broker(0)
    await world.add_broker(1)
    await world.create_topic("t", [0])
    await world.configure(2, "t", segment_bytes="2000000")
    await broker.produce("t", 0, batch())
    held = broker.log("t", 0)
    broker.crash()
    await world.change("t", 0, replicas=(1,), isr=(1,), leader=1, directories=(UNASSIGNED,))
    await broker.restart()
    await world.change("t", 0, replicas=(1, 0), directories=(UNASSIGNED, UNASSIGNED))
    assert broker.log("t", 0).directory == held.directory
    assert broker.log("t", 0).config.segment_bytes == 2_000_000


async def test_a_directory_that_somebody_has_made_in_a_replicas_place_is_no_disk_that_failed(
    autojump_clock: Any, world: Any
) -> None:
    broker = await world.add_broker(0, log_dirs=1)
    await world.create_topic("u", [0])
    (broker.dirs[0] / "t-0").mkdir()
    await world.create_topic("t", [0])
    assert broker.failed == []
    assert broker.partition("t", 0).log is None
    assert (await broker.produce("u", 0, batch())).error == ErrorCode.NONE
    (broker.dirs[0] / "t-0").rmdir()
    await eventually(lambda: broker.partition("t", 0).log is not None, "the replica has its log")


async def test_a_replica_whose_log_is_being_created_does_not_lead_yet(world: Any, autojump_clock: Any) -> None:
    """Not a failed disk: clients and followers try again at once, and nobody logs a warning."""
    broker = await world.add_broker(0)
    answers = []

    async def ask() -> None:
        while True:
            await trio.sleep(0.0001)
            if "t" in world.image.topics.by_name:
                answers.append((await broker.produce("t", 0, batch())).error)
                if not answers[-1]:
                    return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.001)
        await world.create_topic("t", [0])
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in answers
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER}
