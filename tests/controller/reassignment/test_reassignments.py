"""Requests for reassignments and their answers. The steps of a reassignment have tests of their own."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.reassignment import reassignments


async def test_the_same_partition_twice_is_refused_in_each_place_and_others_proceed(five: Any) -> None:
    await five.create("t", (0, 1, 2), (1, 2, 3))
    request = five.move_request(("t", {0: (0, 1, 3), 1: (1, 2, 4)}), ("t", {0: None}))
    response = await five.write(reassignments.alter, request)
    codes = [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in response.responses]
    assert codes == [[(0, 42), (1, 0)], [(0, 42)]]
    assert "t:0" in response.responses[0].partitions[0].error_message
    assert five.listed() == [("t", 1)]
    assert five.partition("t", 0).partition_epoch == 0


async def test_a_request_larger_than_a_batch_is_refused_whole(five: Any) -> None:
    await five.create("t", (0, 1))
    request = five.move_request(("t", {0: (2, 3)}), ("u", dict.fromkeys(range(10_000), (0,))))
    with pytest.raises(ApiError) as caught:
        await five.write(reassignments.alter, request)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert "10001" in caught.value.message
    assert five.listed() == []


async def test_all_records_of_a_request_are_in_one_batch(five: Any) -> None:
    await five.create("t", (0, 1), (1, 2), (2, 3))
    batches = len(five.quorum.batches)
    await five.write(reassignments.alter, five.move_request(("t", dict.fromkeys(range(3), (4, 0)))))
    assert len(five.quorum.batches) == batches + 1


async def test_a_forced_cancel_elects_an_original_replica_that_has_to_recover(five: Any) -> None:
    await five.create("t", (1, 3), unclean_leader_election_enable="true")
    await five.reassign("t", (2, 4))
    await five.set_isr("t", (1, 2, 3))
    await five.stop_broker(1)
    await five.stop_broker(3)
    await five.heartbeat(3)
    assert five.state("t")[1] == (2,)
    assert await five.reassign("t", None) == (0, "")
    assert five.state("t") == ((1, 3), (3,), 3, (), ())
    assert five.partition("t").leader_recovery_state == 1


async def test_a_cancel_is_not_an_unclean_election_even_with_eligible_replicas(five: Any) -> None:
    await five.create("t", (0,))
    await five.reassign("t", (2, 3))
    await five.set_isr("t", (0, 2))
    await five.stop_broker(2)
    await five.stop_broker(0)
    assert five.state("t") == ((2, 3, 0), (), -1, (2, 3), (0,))
    assert five.partition("t").elr == (0,)
    assert (await five.reassign("t", None))[0] == 39


async def test_a_target_that_is_fenced_is_accepted(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.stop_broker(4)
    assert await five.reassign("t", (0, 4)) == (0, "")
    assert five.state("t") == ((0, 4, 1), (0, 1), 0, (4,), (1,))


async def test_the_size_guard_compares_with_the_running_target(five: Any) -> None:
    await five.create("t", (0, 1))
    assert await five.reassign("t", (0, 1, 2), allow_size_change=False) == (38, "The replication factor is changed from 2 to 3")
    await five.reassign("t", (0, 1, 2))
    assert await five.reassign("t", (0, 1), allow_size_change=False) == (38, "The replication factor is changed from 3 to 2")
    assert await five.reassign("t", (0, 1, 3), allow_size_change=False) == (0, "")
    assert await five.reassign("t", None, allow_size_change=False) == (0, "")


async def test_new_replicas_get_a_directory_and_kept_ones_keep_theirs(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1))
    await five.reassign("t", (2, 1))
    assert five.partition("t").directories == tuple(tools.directory(broker_id, 0) for broker_id in (2, 1, 0))
