"""Differences that the table excuses in an unknown recording, and differences that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.checking.recorded_cases import paths
from kraftlab.checking.recorded_cases.judgement import Judge

from .differences import DIFFERENCES

Step = dict[str, Any]
AT = "response.topics[0].partitions[0]"


def created(*replicas: int, topic: str = "x") -> Step:
    return {"action": "create_topic", "topic": topic, "assignment": {"0": list(replicas), "1": list(replicas)}}


def asked(*targets: list[int] | None, partition: int = 0, code: int = 0) -> Step:
    entries = [{"partition_index": partition, "replicas": target} for target in targets]
    answers = [{"partition_index": partition, "error_code": code} for _ in targets]
    return {
        "api": "AlterPartitionReassignments",
        "request": {"topics": [{"name": "x", "partitions": entries}]},
        "response": {"responses": [{"name": "x", "partitions": answers}]},
    }


def told(api: str = "DescribeTopicPartitions", partition: int = 0, **fields: Any) -> Step:
    return {"api": api, "response": {"topics": [{"name": "x", "partitions": [{"partition_index": partition, **fields}]}]}}


def at_rest(topic: str = "x") -> Step:
    return {"action": "await", "what": f"no reassignment on topic {topic}"}


def is_excused(steps: list[Step], field: str, got: Any) -> bool:
    """Return whether the table excuses a value of a field in the last step."""
    index = len(steps) - 1
    path = paths.parse(f"steps[{index}].{field}")
    answer: Any = got
    for part in reversed(path[2:]):
        answer = [*({} for _ in range(part)), answer] if isinstance(part, int) else {part: answer}
    answer = {"steps": {index: answer}}
    return Judge("unseen", DIFFERENCES, [], steps).difference(path, steps[index], answer) is not None


@pytest.mark.parametrize(
    ("steps", "field", "meant", "wrong"),
    [
        pytest.param(
            [created(0, 1), asked([2, 3]), asked([4, 2]), told("ListPartitionReassignments", adding_replicas=[4])],
            "adding_replicas",
            [[2, 4]],
            [[4], [2], [2, 3, 4], []],
            id="adding replicas are told against the original ones",
        ),
        pytest.param(
            [created(4, 1, 2), asked([3, 1, 2]), asked(None), told(replica_nodes=[1, 2, 4])],
            "replica_nodes",
            [[4, 1, 2]],
            [[2, 1, 4], [3, 1, 2], [4, 1]],
            id="a cancel gives back the original order",
        ),
        pytest.param(
            [created(0, 1, 2), asked([0, 3, 4]), asked([0, 3]), told(replica_nodes=[0, 3, 1, 2, 4])],
            "replica_nodes",
            [[0, 3], [0, 3, 1, 2], [0, 1, 2]],
            [[3, 0], [0, 3, 9], [0, 4]],
            id="a target that drops an adding broker begins the list, or is all of it",
        ),
        pytest.param(
            [created(0, 1, 2), asked([0, 3, 4]), asked([0, 3]), told(leader_id=4)],
            "leader_id",
            [0, 3, -1],
            [9],
            id="who leads then is one of them",
        ),
        pytest.param(
            [created(0, 1), asked([0, 1, 3], None), at_rest(), told(replica_nodes=[0, 1, 3])],
            "replica_nodes",
            [[0, 1]],
            [[0, 1, 2], [1, 0]],
            id="a partition that is named twice is left alone",
        ),
        pytest.param(
            [created(0, 1), asked([2, 3]), asked([0, 1, 2, 3]), at_rest(), told(replica_nodes=[2, 3])],
            "replica_nodes",
            [[0, 1, 2, 3]],
            [[3, 2], [0, 1]],
            id="the last target wins",
        ),
        pytest.param(
            [created(0, 1, 2), asked([1]), at_rest(), told(eligible_leader_replicas=[0, 2])],
            "eligible_leader_replicas",
            [[]],
            [[0], [2]],
            id="who is no replica is not eligible",
        ),
        pytest.param(
            [created(0, 1, 2), asked([3, 4]), told(partition=2, replica_nodes=[0, 1, 2, 3, 4])],
            "replica_nodes",
            [[1, 2]],
            [[0, 1, 2]],
            id="a partition that is added has as many replicas as the target",
        ),
    ],
)
def test_only_what_follows_from_the_steps_is_excused(steps: list[Step], field: str, meant: list[Any], wrong: list[Any]) -> None:
    assert all(is_excused(steps, f"{AT}.{field}", got) for got in meant)
    assert not any(is_excused(steps, f"{AT}.{field}", got) for got in wrong)


@pytest.mark.parametrize("field", ["replica_nodes", "isr_nodes", "leader_id", "adding_replicas", "error_code"])
@pytest.mark.parametrize(
    "steps",
    [
        [created(0, 1)],
        [created(0, 1), asked([1, 2])],
        [created(0, 1), asked([1, 2]), asked([3], [4], partition=1)],
        [created(0, 1), asked([1, 2]), asked([3], code=39)],
        [asked([1, 2]), asked([3])],
    ],
)
def test_nothing_is_excused_without_a_reason(steps: list[Step], field: str) -> None:
    assert not is_excused([*steps, told(**{field: [7]})], f"{AT}.{field}", [1, 2])


def test_a_cancel_after_the_end_has_nothing_to_cancel() -> None:
    dropping = [created(0, 1, 2), asked([0, 3, 4]), asked([0, 1, 2])]
    code = "response.responses[0].partitions[0].error_code"
    assert is_excused([*dropping, asked(None)], code, 85)
    assert not is_excused([*dropping, asked(None)], code, 39)
    assert not is_excused([*dropping[:2], asked(None)], code, 85)


def test_a_listing_may_lack_only_ended_reassignments() -> None:
    dropping = [created(0, 1, 2), asked([0, 3, 4]), asked([0, 1, 2])]
    listing = told("ListPartitionReassignments", adding_replicas=[3, 4])
    assert is_excused([*dropping, listing], "response.topics", [])
    assert not is_excused([*dropping[:2], listing], "response.topics", [])
    other = {"name": "y", "partitions": [{"partition_index": 0}]}
    listing["response"]["topics"].append(other)
    assert is_excused([*dropping, listing], "response.topics", [other])
    assert not is_excused([*dropping, listing], "response.topics", [])


def test_replicas_that_never_get_in_sync_are_not_awaited() -> None:
    dropping = [created(0, 1, 2), asked([0, 3, 4]), asked([0, 3])]
    step = {"action": "await", "what": "isr of x-0 is [0, 1, 2, 3]"}
    path = paths.parse("steps[3].action")
    assert Judge("unseen", DIFFERENCES, [], [*dropping, step]).expects(path, step)
    step = {"action": "await", "what": "isr of x-0 is [0, 3]"}
    assert not Judge("unseen", DIFFERENCES, [], [*dropping, step]).expects(path, step)


def test_the_later_of_two_colliding_names_is_refused() -> None:
    names = [{"name": "a.b"}, {"name": "a_b"}]
    made = {"api": "CreateTopics", "request": {"topics": names}, "response": {"topics": names}}
    described = {"api": "DescribeTopicPartitions", "response": {"topics": names}}
    assert is_excused([made], "response.topics[1].error_code", 17)
    assert not is_excused([made], "response.topics[1].error_code", 36)
    assert not is_excused([made], "response.topics[0].error_code", 17)
    assert is_excused([made, described], "response.topics[1].error_code", 3)
    assert not is_excused([described], "response.topics[1].error_code", 3)


def offered(*keys: int) -> list[dict[str, int]]:
    return [{"api_key": key, "min_version": 0, "max_version": key} for key in keys]


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (offered(1, 3), True),
        (offered(2), True),
        (offered(1, 4), False),
        ([{"api_key": 1, "min_version": 0, "max_version": 9}], False),
        ([], False),
    ],
)
def test_a_node_that_serves_less_offers_less(ours: list[dict[str, int]], expected: bool) -> None:
    step = {"api": "ApiVersions", "response": {"api_keys": offered(1, 2, 3)}}
    assert is_excused([step], "response.api_keys", ours) == expected


def answered(api: str, recorded: dict[str, Any], to: int = 0) -> list[Step]:
    kind = "partition_responses" if api == "Produce" else "partitions"
    name = "name" if api == "Produce" else "topic"
    partition = {"partition_index": 0, **recorded}
    response = {"responses": [{name: "x", kind: [partition]}]}
    return [created(0, 1), {"api": api, "to": to, "request": {}, "response": response}]


BATCH = "000000000000000000000002ffff"
PART = "000000000000000100000002ff"


@pytest.mark.parametrize(
    ("steps", "field", "meant", "wrong"),
    [
        pytest.param(
            answered("Produce", {"error_message": None}),
            "partition_responses[0].error_message",
            ["the sequence is 3"],
            [5],
            id="a refused batch says why",
        ),
        pytest.param(
            answered("Produce", {"error_message": "no key"}),
            "partition_responses[0].error_message",
            [],
            ["other"],
            id="a recorded text stays",
        ),
        pytest.param(
            answered("Produce", {"error_code": -1}), "partition_responses[0].error_code", [76], [0, 87], id="an unknown codec"
        ),
        pytest.param(
            answered("Fetch", {"records": BATCH + PART}),
            "partitions[0].records",
            [BATCH],
            ["", BATCH[:-2], PART],
            id="the part of a batch is left out",
        ),
        pytest.param(
            answered("Fetch", {"records": BATCH + BATCH}),
            "partitions[0].records",
            [],
            [BATCH],
            id="a whole batch is not left out",
        ),
        pytest.param(
            answered("Fetch", {"records": BATCH, "last_stable_offset": 1}, to=1),
            "partitions[0].records",
            [BATCH + BATCH, ""],
            [PART],
            id="a follower has more or less",
        ),
        pytest.param(
            answered("Fetch", {"records": BATCH, "last_stable_offset": 1}, to=1),
            "partitions[0].last_stable_offset",
            [0, 2],
            [-1],
            id="a follower knows another high watermark",
        ),
        pytest.param(
            answered("Fetch", {"records": BATCH, "last_stable_offset": 1}),
            "partitions[0].last_stable_offset",
            [],
            [0, 2],
            id="the leader does not",
        ),
    ],
)
def test_differences_of_the_data_plane(steps: list[Step], field: str, meant: list[Any], wrong: list[Any]) -> None:
    assert all(is_excused(steps, f"response.responses[0].{field}", got) for got in meant)
    assert not any(is_excused(steps, f"response.responses[0].{field}", got) for got in wrong)
