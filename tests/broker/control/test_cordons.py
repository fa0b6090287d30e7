"""AlterReplicaLogDirs and DescribeLogDirs as Kafka's clients know them: which check comes first, what is answered and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.control.cordons import cordoned_dirs
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import to_text

LONGEST_NAME = 249


async def alter(broker: Any, *wanted: tuple[object, str, list[int]]) -> dict[tuple[str, int], int]:
    """Send one request of (path, topic, partitions) entries; return the code of each replica in the answer."""
    request = admin_pb2.AlterReplicaLogDirsRequest()
    for path, topic, partitions in wanted:
        request.dirs.add(path=str(path)).topics.add(name=topic, partitions=partitions)
    response = await broker.log_dirs_api.alter(request)
    answers = [
        (topic.topic_name, part.partition_index, part.error_code) for topic in response.results for part in topic.partitions
    ]
    assert len({answer[:2] for answer in answers}) == len(answers), "one answer per replica"
    return {(topic, number): code for topic, number, code in answers}


async def describe(broker: Any, *topics: tuple[str, list[int]]) -> dict[str, list[tuple[str, int]]]:
    """Replicas that a request for these topics shows, by directory name."""
    request = admin_pb2.DescribeLogDirsRequest(topics=admin_pb2.DescribableLogDirTopics())
    for topic, partitions in topics:
        request.topics.values.add(topic=topic, partitions=partitions)
    response = await broker.log_dirs_api.describe(request)
    assert all(result.error_code == ErrorCode.NONE for result in response.results)
    return {
        Path(result.log_dir).name: [(topic.name, part.partition_index) for topic in result.topics for part in topic.partitions]
        for result in response.results
    }


@pytest.fixture
async def broker(autojump_clock: Any, world: Any) -> Any:
    """Broker 0 with directories d0 and d1 and the replica t-0 in d0; broker 1 has t-1."""
    made = await world.add_broker(0)
    await world.add_broker(1)
    await alter(made, (made.dirs[0], "t", [0]))
    await world.create_topic("t", [0], [1])
    return made


async def test_the_first_check_that_fails_counts(autojump_clock: Any, broker: Any) -> None:
    d0, d1 = broker.dirs
    long = "n" * (LONGEST_NAME + 1)
    broker.logs.cordon(frozenset({d1}))
    assert await alter(broker, ("/no/such", long, [0])) == {(long, 0): ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert await alter(broker, ("/no/such", "unknown", [0])) == {("unknown", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert await alter(broker, (d1, "unknown", [0])) == {("unknown", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert await alter(broker, (d0, "unknown", [0])) == {("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await alter(broker, (d0, "t", [9])) == {("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await alter(broker, (d0, "t", [-1])) == {("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await alter(broker, (d0, "t", [1])) == {("t", 1): ErrorCode.REPLICA_NOT_AVAILABLE}
    assert await alter(broker, (d0, "t", [0])) == {("t", 0): ErrorCode.NONE}


async def test_a_name_of_249_characters_is_only_unknown(autojump_clock: Any, broker: Any) -> None:
    name = "n" * LONGEST_NAME
    assert await alter(broker, (broker.dirs[1], name, [0])) == {(name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("spelling", ["{}/", "{}/../d1", "d1", "", "{}x"])
async def test_a_directory_has_one_spelling(autojump_clock: Any, broker: Any, spelling: str) -> None:
    assert await alter(broker, (spelling.format(broker.dirs[1]), "t", [0])) == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}


async def test_an_offline_directory_is_named_before_an_unknown_topic(autojump_clock: Any, broker: Any) -> None:
    await broker.lose(broker.dirs[1])
    assert await alter(broker, (broker.dirs[1], "unknown", [0])) == {("unknown", 0): ErrorCode.KAFKA_STORAGE_ERROR}


async def test_of_two_directories_for_one_replica_the_last_counts(autojump_clock: Any, broker: Any) -> None:
    d0, d1 = broker.dirs
    assert await alter(broker, (d1, "t", [0]), (d0, "t", [0])) == {("t", 0): ErrorCode.NONE}
    assert broker.mover.moves == {}
    assert await alter(broker, (d0, "t", [0]), (d1, "t", [0, 0])) == {("t", 0): ErrorCode.NONE}
    [move] = broker.mover.moves.values()
    assert move.target_dir == d1


async def test_topics_without_partitions_are_not_in_the_answer(autojump_clock: Any, broker: Any) -> None:
    assert await alter(broker) == {}
    assert await alter(broker, (broker.dirs[0], "t", [])) == {}
    assert await alter(broker, ("/no/such", "t", [])) == {}


async def test_an_error_about_an_absent_replica_remembers_the_directory_all_the_same(
    autojump_clock: Any, broker: Any, world: Any
) -> None:
    d0, d1 = broker.dirs
    await alter(broker, (d1, "later", [0]), (d0, "later", [1]))
    await world.create_topic("later", [0], [0])
    assert broker.log("later", 0).log_dir == d1
    assert broker.log("later", 1).log_dir == d0


async def test_a_cordoned_directory_gets_nothing_new_and_keeps_what_it_has(autojump_clock: Any, broker: Any, world: Any) -> None:
    d0, d1 = broker.dirs
    broker.logs.cordon(frozenset({d0}))
    assert await alter(broker, (d0, "t", [0])) == {("t", 0): ErrorCode.NONE}, "it lies there"
    await world.create_topic("new", [0], [0], [0])
    assert {broker.log("new", number).log_dir for number in range(3)} == {d1}
    assert await alter(broker, (d0, "new", [0])) == {("new", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT}


async def test_a_replica_comes_to_a_cordoned_directory_if_there_is_no_other(autojump_clock: Any, broker: Any, world: Any) -> None:
    broker.logs.cordon(frozenset(broker.dirs))
    await world.create_topic("new", [0])
    assert broker.log("new", 0).log_dir in broker.dirs
    response = await broker.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    assert [result.is_cordoned for result in response.results] == [True, True]


async def test_a_move_can_be_cancelled_into_a_directory_that_was_cordoned_meanwhile(autojump_clock: Any, broker: Any) -> None:
    d0, d1 = broker.dirs
    assert await alter(broker, (d1, "t", [0])) == {("t", 0): ErrorCode.NONE}
    broker.logs.cordon(frozenset({d0}))
    assert await alter(broker, (d0, "t", [0])) == {("t", 0): ErrorCode.NONE}
    assert broker.mover.moves == {}


@pytest.mark.parametrize(
    ("value", "cordoned"),
    [
        (None, []),
        ("", []),
        ("/a", ["/a"]),
        ("/a, /b", ["/a", "/b"]),
        ("*", ["/a", "/b"]),
        ("/a/", []),
        ("/elsewhere,/b", ["/b"]),
    ],
)
def test_the_property_names_directories_or_all_of_them(value: str | None, cordoned: list[str]) -> None:
    assert sorted(map(str, cordoned_dirs(value, (Path("/a"), Path("/b"))))) == cordoned


@pytest.mark.parametrize(
    ("topics", "shown"),
    [
        ([], []),
        ([("unknown", [0])], []),
        ([("t", [])], []),
        ([("t", [1, 9])], []),
        ([("t", [0, 0])], [("t", 0)]),
        ([("t", [9]), ("t", [0])], [("t", 0)]),
        ([("a b", [0])], []),
    ],
)
async def test_missing_replicas_are_left_out_of_descriptions(
    autojump_clock: Any, broker: Any, topics: list[tuple[str, list[int]]], shown: list[tuple[str, int]]
) -> None:
    assert await describe(broker, *topics) == {"d0": shown, "d1": []}


async def test_every_configured_directory_is_described_offline_ones_with_their_error(autojump_clock: Any, broker: Any) -> None:
    await broker.lose(broker.dirs[1])
    response = await broker.log_dirs_api.describe(admin_pb2.DescribeLogDirsRequest())
    by_name = {Path(result.log_dir).name: result for result in response.results}
    assert by_name["d0"].error_code == ErrorCode.NONE and by_name["d0"].usable_bytes > 0
    assert by_name["d1"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (by_name["d1"].total_bytes, by_name["d1"].usable_bytes, len(by_name["d1"].topics)) == (-1, -1, 0)


async def shown(broker: Any, request: admin_pb2.DescribeLogDirsRequest) -> dict[str, list[tuple[str, int, bool]]]:
    """Replicas in the answer to a request, by directory name."""
    response = await broker.log_dirs_api.describe(request)
    return {
        Path(result.log_dir).name: [
            (topic.name, part.partition_index, part.is_future_key) for topic in result.topics for part in topic.partitions
        ]
        for result in response.results
    }


async def test_a_broker_filters_by_topic_directory_and_progress(autojump_clock: Any, world: Any) -> None:
    broker = await world.add_broker(0)
    await alter(broker, (broker.dirs[0], "t", [0, 1]), (broker.dirs[1], "u", [0]))
    for topic, assignments in (("t", ([0], [0])), ("u", ([0],))):
        await world.create_topic(topic, *assignments)
    await world.fill(5, 5_000)
    Request, Topics = admin_pb2.DescribeLogDirsRequest, admin_pb2.DescribableLogDirTopics
    whole = admin_pb2.DescribableLogDirTopic(topic="t", all_partitions=True)
    one = admin_pb2.DescribableLogDirTopic(topic="t", partitions=[1])
    t0, t1, u0 = (("t", 0, False), ("t", 1, False), ("u", 0, False))
    assert await shown(broker, Request()) == {"d0": [t0, t1], "d1": [u0]}
    assert await shown(broker, Request(topics=Topics(values=[whole]))) == {"d0": [t0, t1], "d1": []}
    assert await shown(broker, Request(topics=Topics(values=[one]))) == {"d0": [t1], "d1": []}
    assert await shown(broker, Request(log_dirs=[str(broker.dirs[1])])) == {"d1": [u0]}
    directory_id = to_text(broker.logs.directory_id_of(broker.dirs[1]))
    assert await shown(broker, Request(log_dirs=[directory_id])) == {"d1": [u0]}
    assert await shown(broker, Request(log_dirs=["/no/such"])) == {}
    assert await shown(broker, Request(only_filling=True)) == {"d0": [], "d1": []}
    await world.configure(4, "", replica_alter_log_dirs_io_max_bytes_per_second="1")
    await alter(broker, (broker.dirs[1], "t", [0]))
    assert await shown(broker, Request(only_filling=True)) == {"d0": [t0], "d1": [("t", 0, True)]}
    assert (await broker.log_dirs_api.describe(Request())).move_limit == 1
