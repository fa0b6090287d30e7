"""Topics and reassignments in znodes: parser, precedence, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.output import BadInput, CommandFailed
from kraftlab.cli.zookeeper.command import apply_plan, create_topics
from kraftlab.cli.zookeeper.znodes import (
    Override,
    import_lines,
    parse_reassignments,
    parse_topic,
    plan_import,
    read_dump,
)

ID = "CQkJCQkJCQkJCQkJCQkJCQ"


def topic_json(version: int = 3, **fields: Any) -> bytes:
    return json.dumps({"version": version, **fields}).encode()


MOVING = topic_json(
    partitions={"0": [1, 2, 3], "1": [2, 3], "2": [3, 1, 2]},
    adding_replicas={"0": [1], "2": [3]},
    removing_replicas={"0": [3], "2": [1]},
    topic_id=ID,
)


def test_all_three_versions_are_read() -> None:
    plain = parse_topic("f", "t", topic_json(1, partitions={"1": [2], "0": [1]}))
    assert (plain.partitions, plain.adding, plain.removing, plain.topic_id) == ({0: (1,), 1: (2,)}, {}, {}, None)
    second = parse_topic("f", "t", topic_json(2, partitions={"0": [1, 2]}, adding_replicas={"0": [2]}, removing_replicas={}))
    assert (second.original(0), second.target(0)) == ((1,), (1, 2))
    third = parse_topic("f", "t", MOVING)
    assert (third.original(0), third.target(0), third.original(1), third.topic_id) == ((2, 3), (1, 2), (2, 3), ID)


def test_the_znodes_stat_after_the_data_is_skipped() -> None:
    printed = MOVING + b"\ncZxid = 0x24\nctime = Sat Nov 21 17:06:35 UTC 2026\ndataVersion = 0\n"
    assert parse_topic("f", "t", printed) == parse_topic("f", "t", MOVING)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "f: it is not valid JSON"),
        (b"[]", "f: it is not of the expected shape: Expected `object`, got `array`; give the znode's stored data"),
        (topic_json(4, partitions={"0": [1]}), ".version is 4; versions 1, 2 and 3 are supported"),
        (b'{"partitions":{"0":[1]}}', "missing required field `version`"),
        (b'{"version":true,"partitions":{"0":[1]}}', "Expected `int`, got `bool` - at `$.version`"),
        (topic_json(1), "missing required field `partitions`"),
        (topic_json(1, partitions={}), ".partitions is empty"),
        (topic_json(1, partitions={"0": []}), ".partitions.0 is empty"),
        (topic_json(1, partitions={"0": [1], "2": [1]}), "no 1; numbers go from 0 without gaps"),
        (topic_json(1, partitions={"x": [1]}), "Expected `int`, got `str` - at `key` in `$.partitions`"),
        (topic_json(1, partitions={"0": [1, 1]}), ".partitions.0 names broker 1 twice"),
        (topic_json(1, partitions={"0": [-1]}), "Expected `int` >= 0 - at `$.partitions[...][0]`"),
        (topic_json(1, partitions={"0": ["1"]}), "Expected `int`, got `str` - at `$.partitions[...][0]`"),
        (topic_json(1, partitions={"0": [1]}, adding_replicas={"0": [1]}), "the field exists since version 2"),
        (topic_json(2, partitions={"0": [1]}, topic_id=ID), ".topic_id is given, but .version is 2"),
        (
            topic_json(2, partitions={"0": [1, 2]}, adding_replicas={"0": [3]}),
            ".adding_replicas.0 names broker 3, which is not in",
        ),
        (topic_json(2, partitions={"0": [1]}, removing_replicas={"1": [1]}), "but .partitions has no 1"),
        (topic_json(2, partitions={"0": [1]}, adding_replicas={"0": [1]}), "every replica of partition 0 is added"),
        (topic_json(2, partitions={"0": [1]}, removing_replicas={"0": [1]}), "every replica of partition 0 is removed"),
        (
            topic_json(2, partitions={"0": [1, 2]}, adding_replicas={"0": [1]}, removing_replicas={"0": [1]}),
            "broker 1 is both added to and removed from partition 0",
        ),
    ],
)
def test_a_topics_znode_that_does_not_hold_is_refused_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_topic("f", "t", data)
    assert str(refused.value).startswith("f: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (3, "r: it is not of the expected shape: Expected `object`, got `int` - at `$.partitions[0]`"),
        ({"partition": 0, "replicas": []}, "missing required field `topic` - at `$.partitions[0]`"),
        (
            {"topic": "t", "partition": -1, "replicas": []},
            "r: it has the partition -1 at .partitions[0]; numbers are from 0 to 2147483647",
        ),
        ({"topic": "t", "partition": 0}, "missing required field `replicas` - at `$.partitions[0]`"),
        ({"topic": "t", "partition": 0, "replicas": [-1]}, "it has the broker -1 at .partitions[0].replicas; ids are from 0"),
        ({"topic": "t", "partition": 0, "replicas": [*range(1001)]}, "it has 1001 replicas at .partitions[0]; at most 1000"),
        ({"topic": "t", "partition": 0, "replicas": [1, 1]}, "t-0 contains multiple entries for 1"),
        (
            {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]},
            "replicas list [1, 2] is different from size of log dirs list [any] for partition t-0",
        ),
        (
            {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["d0"]},
            "Log directory 'd0' of partition t-0 is neither an absolute path nor",
        ),
    ],
)
def test_a_reassignment_that_does_not_hold_is_refused_with_its_place(entry: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_reassignments("r", json.dumps({"version": 1, "partitions": [entry]}).encode())
    assert said in str(refused.value)


def test_reassignments_of_another_version_or_named_twice_are_refused() -> None:
    twice = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}
    with pytest.raises(BadInput, match=r"^r: Partition reassignment contains duplicate topic partitions: t-0$"):
        parse_reassignments("r", json.dumps(twice).encode())
    with pytest.raises(BadInput, match=r"^r: Not supported version field value 2$"):
        parse_reassignments("r", b'{"version":2,"partitions":[]}')
    with pytest.raises(BadInput, match=r"^r: Partition reassignment list cannot be empty$"):
        parse_reassignments("r", b'{"version":1}')


def test_reassignments_may_be_none_cancel_and_have_the_znodes_stat_behind_them() -> None:
    assert parse_reassignments("r", b'{"version":1,"partitions":[]}') == {}
    entry = b'{"topic":"t","partition":0,"replicas":[],"log_dirs":null}'
    found = parse_reassignments("r", b'{"version":1,"partitions":[' + entry + b"]}\ncZxid = 0x24\n")
    assert found == {("t", 0): Override("r", ())}


def test_reassign_partitions_overrides_the_topics_znode() -> None:
    topic = parse_topic("f", "t", MOVING)
    overrides = {("t", 0): Override("r", (5, 6), ("/d0", "any")), ("t", 2): Override("r", ())}
    first, second, third = plan_import([topic], overrides)
    assert (first.original, first.target, first.log_dirs) == ((2, 3), (5, 6), {5: "/d0"})
    assert (second.original, second.target) == ((2, 3), None)
    assert (third.original, third.target, third.reason) == ((1, 2), None, "/admin/reassign_partitions cancels it")
    assert [entry.target for entry in plan_import([topic], {})] == [(1, 2), None, (3, 2)]
    (asked, *_) = plan_import([topic], {("t", 0): Override("r", (2, 3))})
    assert (asked.target, asked.reason) == (None, "/admin/reassign_partitions cancels it")
    assert import_lines([topic], [first, second]) == [
        f"t: 3 partitions; its id {ID} is not kept, the cluster gives a new one",
        "  t-0: [2, 3] -> [5, 6] (/admin/reassign_partitions asks for it, instead of [1, 2]); broker 5 in /d0",
        "  t-1: [2, 3] stays (it does not move)",
    ]


brokers = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)


@given(original=brokers, target=brokers)
def test_a_reassignment_as_kafka_writes_it_gives_back_both_its_sets(original: list[int], target: list[int]) -> None:
    """Kafka stores the target, then the removed replicas."""
    replicas = target + [broker for broker in original if broker not in target]
    adding = [broker for broker in target if broker not in original]
    removing = [broker for broker in original if broker not in target]
    data = topic_json(2, partitions={"0": replicas}, adding_replicas={"0": adding}, removing_replicas={"0": removing})
    (entry,) = plan_import([parse_topic("f", "t", data)], {})
    assert set(entry.original) == set(original)
    assert entry.target == (tuple(target) if adding or removing else None)


def test_contradictions_between_znodes_are_refused() -> None:
    one = parse_topic("a", "t", MOVING)
    with pytest.raises(BadInput, match="a: topic t is in a as well"):
        plan_import([one, one], {})
    for key, said in ((("t", 9), "topic t has no partition 9"), (("x", 0), "there is no topic x")):
        with pytest.raises(BadInput, match=f"but {said}; take that entry out, or give its znode"):
            plan_import([one], {key: Override("r", (1,))})


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Znodes as files and as directories with their data."""
    topics = tmp_path / "brokers" / "topics"
    (topics / "clicks").mkdir(parents=True)
    (topics / "clicks" / "data").write_bytes(topic_json(1, partitions={"0": [0, 1]}))
    moving = topic_json(
        2, partitions={"0": [0, 2, 1], "1": [2, 1, 0]}, adding_replicas={"0": [2], "1": [2]}, removing_replicas={"1": [0]}
    )
    (topics / "orders.json").write_bytes(moving)
    (tmp_path / "admin").mkdir()
    override = {"version": 1, "partitions": [{"topic": "orders", "partition": 1, "replicas": []}]}
    (tmp_path / "admin" / "reassign_partitions").write_text(json.dumps(override))
    return tmp_path


def test_a_directory_that_mirrors_the_znodes_is_read(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics, overrides = read_dump(dump)
    assert [znode.topic for znode in topics] == ["clicks", "orders"]
    assert list(overrides) == [("orders", 1)]
    assert main.run(["import-znode", "--directory", str(dump), "--validate-only"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "  orders-0: [0, 1] -> [0, 2, 1] (/brokers/topics/orders has it moving)" in printed
    assert printed[-1] == "The znodes are valid. Nothing was done; no cluster was asked."


def test_only_a_files_name_may_end_in_json_beside_the_topics(tmp_path: Path) -> None:
    topics = tmp_path / "brokers" / "topics"
    (topics / "events.json").mkdir(parents=True)
    (topics / "events.json" / "data.json").write_bytes(topic_json(1, partitions={"0": [0]}))
    (topics / "orders.json").write_bytes(topic_json(1, partitions={"0": [0]}))
    assert [znode.topic for znode in read_dump(tmp_path)[0]] == ["events.json", "orders"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--directory", "/nowhere"], "holds no brokers/topics"),
        (["--directory", "/nowhere", "--validate-only"], "holds no brokers/topics"),
        (["--validate-only"], "give --directory, or files"),
        (["--validate-only", "--topic-znode", "orders"], "expected TOPIC=FILE"),
        (["--validate-only", "--topic-znode", "orders=/nowhere"], "cannot use /nowhere"),
    ],
)
def test_missing_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import-znode", *arguments]) == (1 if "nowhere" in str(arguments) else 64)
    assert said in capsys.readouterr().err


class Controller:
    """A controller that accepts 10,000 records in one request, and refuses topic t1."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.moved: list[tuple[str, int]] = []

    def describe_topics(self) -> dict[str, Any]:
        return {}

    def create_topics(self, topics: Iterable[pb.CreatableTopic], *, validate_only: bool) -> pb.CreateTopicsResponse:
        topics = list(topics)
        assert sum(1 + len(topic.assignments) for topic in topics) <= 10_000
        self.created += [topic.name for topic in topics]
        return pb.CreateTopicsResponse(
            topics=[pb.CreatableTopicResult(name=topic.name, error_code=37 if topic.name == "t1" else 0) for topic in topics]
        )

    def alter_partition_reassignments(
        self, targets: dict[tuple[str, int], Any], *, options: Any
    ) -> pb.AlterPartitionReassignmentsResponse:
        assert len(targets) <= 10_000
        self.moved += targets
        return pb.AlterPartitionReassignmentsResponse()


@pytest.mark.parametrize(("topics", "partitions"), [(4, 4_000), (11_000, 1)])
def test_a_large_dump_is_imported_in_portions_that_the_controller_takes(topics: int, partitions: int) -> None:
    moving = {
        "partitions": {str(n): [1, 2] for n in range(partitions)},
        "adding_replicas": {str(n): [2] for n in range(partitions)},
    }
    znodes = [parse_topic("f", f"t{number}", topic_json(2, **moving)) for number in range(0, 2 * topics, 2)]
    controller: Any = Controller()
    apply_plan(controller, znodes, plan_import(znodes, {}), validate_only=False)
    assert sorted(controller.created) == sorted(znode.topic for znode in znodes)
    assert len(set(controller.moved)) == len(controller.moved) == topics * partitions
    refused = parse_topic("f", "t1", topic_json(1, partitions={"0": [1]}))
    with pytest.raises(CommandFailed, match=f"1 of {topics + 1} topics were refused, t1"):
        create_topics(controller, plan_import([*znodes, refused], {}), validate_only=False)
