"""Digests of what replicas hold: they take long, and others go on meanwhile."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from kraftlab.broker.log.disks import Disks
from kraftlab.broker.log.errors import LogClosed
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import LogDigestRequest

from ..conftest import batch


async def slowly(limiter: trio.CapacityLimiter | None, work: Any, *arguments: Any, **options: Any) -> Any:
    """A digest takes a second, anything else no time."""
    call = partial(work, *arguments, **options)
    if limiter is None:
        return call()
    async with limiter:
        if getattr(work, "__name__", "") == "digest":
            await trio.sleep(1)
        return call()


async def test_digests_of_all_replicas_do_not_keep_producers_waiting(
    autojump_clock: Any, world: Any, nursery: trio.Nursery
) -> None:
    broker = await world.add_broker(0, log_dirs=1)
    await world.create_topic("t", *[[0]] * 40)
    broker.disks.run = Disks(broker.failed.append, slowly).run
    answers, answered = list[Any](), trio.Event()

    async def ask() -> None:
        answers.append(await broker.data_plane.digest(LogDigestRequest()))
        answered.set()

    nursery.start_soon(ask)
    await trio.sleep(0.5)
    began = trio.current_time()
    assert (await broker.produce("t", 7, batch(), acks=1)).error == ErrorCode.NONE
    assert trio.current_time() - began < 2
    await answered.wait()
    [answer] = answers
    assert [digest.partition for digest in answer.replicas] == list(range(40))


async def test_a_digest_is_of_the_log_that_a_move_has_put_in_the_place_of_another(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.add_broker(0)
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch())
    await trio.sleep(1)  # until the directory of the replica is published
    partition = broker.partition("t", 0)
    log, calls = partition.online_log(), list[Any]()
    digest = log.digest()

    class Left:
        log_dir = broker.dirs[0]

        def digest(self) -> None:
            calls.append(self)
            partition.log = log
            raise LogClosed("it has moved")

    partition.log = Left()
    [found] = (await broker.data_plane.digest(LogDigestRequest((partition.id,)))).replicas
    assert (len(calls), found.error, found.sha256, found.directory) == (1, ErrorCode.NONE, digest.sha256, str(log.log_dir))
