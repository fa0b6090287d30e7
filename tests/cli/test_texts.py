"""The other tools' lines, compared with recorded runs of Kafka's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.configs import text as configs_text
from kraftlab.cli.configs.text import KINDS, Entity
from kraftlab.cli.output import BadInput, Output
from kraftlab.cli.partitions import leader_election as leader_election_command
from kraftlab.cli.partitions import log_dir_text
from kraftlab.cli.quorum import text as quorum_text
from kraftlab.cli.reassign.actions import partition_errors
from kraftlab.cli.topics import text as topics_text
from kraftlab.cli.topics.text import PartitionView, TopicUsageError, TopicView
from kraftlab.client.results import ConfigSynonym, DescribedConfig, Quorum, QuorumEndpoint, QuorumReplica, log_dirs_of


def fields(line: str) -> dict[str, str]:
    return dict(field.split(": ", 1) for field in line.strip("\t").split("\t"))


def numbers(value: str) -> tuple[int, ...]:
    return tuple(map(int, value.split(","))) if value else ()


def topics_of(lines: list[str]) -> list[TopicView]:
    """The views that recorded lines show."""
    topics: list[TopicView] = []
    for line in lines:
        shown = fields(line)
        if not line.startswith("\t"):
            pattern = r"(?:^|,)([a-z.]+)="
            keys = re.findall(pattern, shown["Configs"])
            values = re.split(pattern, shown["Configs"])[2::2]
            topics.append(TopicView(shown["Topic"], shown["TopicId"], (), dict(zip(keys, values, strict=True))))
            continue
        view = PartitionView(
            int(shown["Partition"]),
            int(shown["Leader"]),
            numbers(shown["Replicas"]),
            numbers(shown["Isr"]),
            numbers(shown.get("Adding Replicas", "")),
            numbers(shown.get("Removing Replicas", "")),
        )
        topics[-1] = msgspec.structs.replace(topics[-1], partitions=(*topics[-1].partitions, view))
    return topics


@pytest.mark.parametrize("name", ["008", "009", "024", "038"])
def test_topics_are_described_as_kafka_describes_them(transcript, name: str) -> None:
    recorded = transcript(name).stdout
    assert topics_text.describe_lines(topics_of(recorded)) == recorded


def test_adding_replicas_do_not_make_a_partition_under_replicated(transcript) -> None:
    topics = topics_of(transcript("024").stdout)
    assert topics_text.describe_lines(topics, ["under-replicated"]) == []


def test_partition_filters_leave_headers_out() -> None:
    partitions = (PartitionView(0, 1, (1, 2), (1,)), PartitionView(1, -1, (1, 2), (1, 2)), PartitionView(2, 2, (1, 2), (1, 2)))
    topic = TopicView("t", "id", partitions, {}, min_insync_replicas=2)

    def shown(name: str) -> list[str]:
        return [line.split("\t")[2] for line in topics_text.describe_lines([topic], [name], alive=frozenset({1, 2}))]

    assert shown("under-replicated") == ["Partition: 0"]
    assert shown("unavailable") == ["Partition: 1"]
    assert shown("under-min-isr") == ["Partition: 0"]
    assert shown("at-min-isr") == ["Partition: 1", "Partition: 2"]
    assert "Leader: none" in topics_text.describe_lines([topic])[2]
    assert topics_text.describe_lines([topic], overrides_only=True) == []


@pytest.mark.parametrize(
    ("words", "refused", "besides"),
    [
        ("--delete --topic .* --topics-with-overrides", "topics-with-overrides", "delete"),
        ("--delete --topic .* --exclude-internal", "exclude-internal", "delete"),
        ("--list --under-replicated-partitions", "under-replicated-partitions", "list"),
        ("--alter --topic t --partitions 3 --at-min-isr-partitions", "at-min-isr-partitions", "alter"),
        ("--create --topic t --if-exists", "if-exists", "create"),
        ("--describe --topics-with-overrides --unavailable-partitions", "unavailable-partitions", "topics-with-overrides"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused_as_kafka_does(
    words: str, refused: str, besides: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["topics", "--bootstrap-server", "127.0.0.1:9", *words.split()]) == 64
    said = f'Option "[{refused}]" can\'t be used with option "[{besides}]"\nSee: kraftlab topics --help\n'
    assert capsys.readouterr().err == said


def test_topic_patterns_are_regular_expressions_and_lists() -> None:
    names = ["a", "ab", "b", "a.b"]
    assert topics_text.matching("a.*", names) == ["a", "ab", "a.b"]
    assert topics_text.matching("a,b", names) == ["a", "b"]
    with pytest.raises(TopicUsageError, match="is an invalid regular expression"):
        topics_text.matching("(", names)


def test_replica_assignments_are_parsed_and_judged() -> None:
    assert topics_text.parse_assignment("0:1:2,1:2:0") == {0: (0, 1, 2), 1: (1, 2, 0)}
    for bad, said in (
        ("0:0", "duplicate entries: 0"),
        ("0:1,2", "Partition 1 has different replication factor"),
        ("x", "for example 0:1:2"),
    ):
        with pytest.raises(TopicUsageError, match=said):
            topics_text.parse_assignment(bad)
    assert topics_text.parse_configs(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(TopicUsageError, match='format "key=val"'):
        topics_text.parse_configs(["a"])


def replica(number: int, directory: str, end: int, fetch: int | None, caught_up: int | None, *endpoints: str) -> QuorumReplica:
    parts = (re.fullmatch(r"(\w+)://(.*):(\d+)", endpoint) for endpoint in endpoints)
    at = tuple(QuorumEndpoint(found[1], found[2], int(found[3])) for found in parts if found is not None)
    return QuorumReplica(number, directory, end, fetch, caught_up, at)


def quorum(
    leader_id: int, high_watermark: int, voters: Iterable[QuorumReplica], observers: Iterable[QuorumReplica] = ()
) -> Quorum:
    return Quorum("kraftlab-oracle-000001", leader_id, 1, high_watermark, tuple(voters), tuple(observers), 0, 0, 0)


def test_observers_are_shown_without_endpoints_as_kafka_shows_them() -> None:
    found = quorum(1, 9, [replica(1, "d", 9, 1, 1, "CONTROLLER://h:1")], [replica(2, "e", 9, 1, 1, "PEER://h:2")])
    *_, voters, observers = quorum_text.status_lines(found)
    assert json.loads(voters[24:]) == [{"id": 1, "directoryId": "d", "endpoints": ["CONTROLLER://h:1"]}]
    assert json.loads(observers[24:]) == [{"id": 2, "directoryId": "e"}]


def test_quorum_status_is_that_of_kafka(transcript) -> None:
    recorded = transcript("014").stdout
    voters, observers = (json.loads(line[24:]) for line in recorded[6:])
    now = 1_000_000
    found = quorum(
        3002,
        302,
        (replica(v["id"], v["directoryId"], 303, now, now if v["id"] == 3002 else now - 167, v["endpoints"][0]) for v in voters),
        (replica(o["id"], o["directoryId"], 303, now, now) for o in observers),
    )
    assert quorum_text.status_lines(found) == recorded


@pytest.mark.parametrize(("name", "human"), [("015", False), ("016", True)])
def test_the_replication_table_is_that_of_kafka(transcript, name: str, human: bool) -> None:
    recorded = transcript(name).stdout
    rows = [[cell.strip() for cell in line.split("\t")] for line in recorded[1:]]
    now = 10_000_000

    def time_of(cell: str) -> int:
        return now - int(cell.removesuffix(" ms ago")) if human else int(cell)

    views = [replica(int(r[0]), r[1], int(r[2]), time_of(r[4]), time_of(r[5])) for r in rows]
    ours = quorum_text.replication_lines(quorum(3002, 0, views[:3], views[3:]), now if human else None)
    assert ours[:4] == recorded[:4]
    assert sorted(ours[4:]) == sorted(recorded[4:])


def test_unknown_lags_and_directories_are_marked() -> None:
    voters = (replica(1, "AAAAAAAAAAAAAAAAAAAAAA", 5, None, None), replica(2, "x", 3, None, None))
    lines = quorum_text.status_lines(quorum(1, 0, voters))
    assert lines[4:6] == ["MaxFollowerLag:         2", "MaxFollowerLagTimeMs:   -1"]
    assert '"directoryId": null' in lines[6]


def test_log_dirs_print_kafkas_document(transcript) -> None:
    recorded = json.loads(transcript("012").stdout[2])
    described = {}
    for broker in recorded["brokers"]:
        results = []
        for directory in broker["logDirs"]:
            topics: dict[str, pb.LogDirTopic] = {}
            for entry in directory["partitions"]:
                name, _, number = entry["partition"].rpartition("-")
                topics.setdefault(name, pb.LogDirTopic(name=name)).partitions.append(
                    pb.LogDirPartition(partition_index=int(number), partition_size=entry["size"], offset_lag=entry["offsetLag"])
                )
            results.append(pb.LogDirResult(log_dir=directory["logDir"], topics=topics.values()))
        described[broker["broker"]] = log_dirs_of(pb.DescribeLogDirsResponse(results=results))
    ours: Any = log_dir_text.document(described)
    for broker in (*ours["brokers"], *recorded["brokers"]):
        broker["logDirs"].sort(key=lambda directory: directory["logDir"])
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda entry: entry["partition"])
    assert json.dumps(ours) == json.dumps(recorded)


def test_an_offline_directory_is_named_with_kafkas_error() -> None:
    response = pb.DescribeLogDirsResponse(results=[pb.LogDirResult(error_code=56, log_dir="/d")])
    document: Any = log_dir_text.document({1: log_dirs_of(response)})
    shown = document["brokers"][0]["logDirs"][0]
    assert shown == {"partitions": [], "error": "org.apache.kafka.common.errors.KafkaStorageException", "logDir": "/d"}


def test_unknown_brokers_are_refused_with_kafkas_text(transcript) -> None:
    assert log_dir_text.unknown_brokers([9], [0, 1, 2, 3]) == transcript("013").stderr[0]


def test_configs_are_described_as_kafka_describes_them(transcript) -> None:
    for name, kind, entity in (("030", "brokers", "3"), ("031", "topics", "orders"), ("037", "brokers", "3")):
        recorded = transcript(name).stdout
        entries = []
        for line in recorded[1:]:
            key, _, value = line.strip().partition(" ")[0].partition("=")
            source = 2 if kind == "brokers" else 1
            entries.append(DescribedConfig(key, value, source, False, (ConfigSynonym(key, value, source),)))
        assert configs_text.described_lines(Entity(KINDS[kind], entity), False, entries) == recorded


def test_every_place_that_has_a_say_in_a_config_is_shown() -> None:
    synonyms = (ConfigSynonym("k", "1", 1), ConfigSynonym("log.k", "2", 3), ConfigSynonym("log.k", "3", 5))
    shown = configs_text.described_lines(Entity(KINDS["topics"], "t"), True, [DescribedConfig("k", "1", 1, False, synonyms)])
    assert shown == [
        "All configs for topic t are:",
        "  k=1 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:k=1, DYNAMIC_DEFAULT_BROKER_CONFIG:log.k=2, DEFAULT_CONFIG:log.k=3}",
    ]
    hidden = configs_text.described_lines(Entity(KINDS["brokers"], None), False, [DescribedConfig("own", None, 3, True)])
    assert hidden == ["Default configs for brokers in the cluster are:", "  own=null sensitive=true synonyms={}"]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ([("user", "alice")], "Quota configs for user-principal 'alice' are a=1.0, b=2.5"),
        ([("client-id", "c"), ("user", None)], "Quota configs for the default user-principal, client-id 'c' are a=1.0, b=2.5"),
        ([("ip", None)], "Quota configs for the default ip are a=1.0, b=2.5"),
    ],
)
def test_quotas_are_shown_with_whom_they_limit(parts: list[tuple[str, str | None]], line: str) -> None:
    assert configs_text.quota_line(parts, {"b": 2.5, "a": 1.0}) == line


def test_quotas_are_numbers() -> None:
    assert configs_text.parse_quotas({"a": "1", "b": "2.5"}) == {"a": 1.0, "b": 2.5}
    with pytest.raises(BadInput, match="'x' is not a number"):
        configs_text.parse_quotas({"a": "x"})


def test_added_configs_keep_lists_in_brackets() -> None:
    assert configs_text.parse_added("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    with pytest.raises(BadInput, match="'b' is not a config"):
        configs_text.parse_added("a=1,b")


# --- codes that no table knows


def test_unknown_error_codes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    election = pb.ElectLeadersResponse()
    election.replica_election_results.add(topic="t").partition_result.add(partition_id=0, error_code=777)
    assert leader_election_command.report(election, "PREFERRED", Output(False)) == 1
    assert capsys.readouterr().out == (
        "Error completing leader election (PREFERRED) for partition: t-0: UNKNOWN_SERVER_ERROR: error code 777: no message\n"
    )
    moves = pb.AlterPartitionReassignmentsResponse()
    moves.responses.add(name="t").partitions.add(partition_index=0, error_code=777)
    assert partition_errors(moves) == {("t", 0): "error code 777: no message"}
