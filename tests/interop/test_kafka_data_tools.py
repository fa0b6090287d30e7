"""Apache Kafka's own producers and consumers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .conftest import KafkaTools

LINES = [f"line {number}" for number in range(100)]


def create(kafka: KafkaTools, topic: str, partitions: int, *options: str) -> None:
    kafka("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "3", *options)


def produce(kafka: KafkaTools, topic: str, lines: list[str], *options: str) -> None:
    kafka("kafka-console-producer", "--topic", topic, *options, stdin="".join(f"{line}\n" for line in lines))


def read_partition(kafka: KafkaTools, topic: str, count: int, *options: str, offset: str = "earliest") -> list[str]:
    """Read partition 0 without a group."""
    where = ("--topic", topic, "--partition", "0", "--offset", offset, "--max-messages", str(count))
    return kafka("kafka-console-consumer", *where, *options).splitlines()


def test_lines_are_produced_and_read_in_order(kafka: KafkaTools) -> None:
    create(kafka, "lines", 1)
    produce(kafka, "lines", LINES)
    assert read_partition(kafka, "lines", len(LINES)) == LINES
    assert read_partition(kafka, "lines", 1, offset="42") == ["line 42"]
    assert kafka("kafka-get-offsets", "--topic", "lines") == "lines:0:100\n"
    assert kafka("kafka-get-offsets", "--topic", "lines", "--time", "earliest") == "lines:0:0\n"
    assert re.fullmatch(r"lines:0:\d+\n", kafka("kafka-get-offsets", "--topic", "lines", "--time", "max-timestamp"))


def test_records_have_keys_headers_and_timestamps(kafka: KafkaTools) -> None:
    create(kafka, "keyed", 1)
    options = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    produce(kafka, "keyed", ["a:1\tkey\tvalue"], *options, "--compression-codec", "zstd")
    shown = ("print.key=true", "print.headers=true", "print.timestamp=true", "print.offset=true")
    options = tuple(word for name in shown for word in ("--formatter-property", name))
    (line,) = read_partition(kafka, "keyed", 1, *options)
    assert re.fullmatch(r"CreateTime:\d{13}\tOffset:0\ta:1\tkey\tvalue", line)


def test_a_topic_is_created_by_the_first_record(kafka: KafkaTools) -> None:
    kafka("kafka-console-producer", "--topic", "made-by-a-producer", stdin="first\n", warnings=("UNKNOWN_TOPIC_OR_PARTITION",))
    assert read_partition(kafka, "made-by-a-producer", 1) == ["first"]


def test_records_are_deleted_up_to_an_offset(kafka: KafkaTools, tmp_path: Path) -> None:
    create(kafka, "shortened", 1)
    produce(kafka, "shortened", LINES)
    plan = tmp_path / "offsets.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"shortened","partition":0,"offset":90}]}')
    said = kafka("kafka-delete-records", "--offset-json-file", str(plan)).splitlines()
    assert said[-1].split("\t") == ["partition: shortened-0", "low_watermark: 90"]
    assert read_partition(kafka, "shortened", 1) == ["line 90"]


def describe_group(kafka: KafkaTools, group: str) -> list[tuple[str, ...]]:
    """Return topic, partition, committed offset, end offset and lag of each partition of a group without members."""
    said = kafka("kafka-consumer-groups", "--describe", "--group", group)
    return re.findall(rf"^{group} +(\S+) +(\d+) +(\d+) +(\d+) +(\d+) +- +- +-", said, re.MULTILINE)


def test_a_group_goes_on_at_the_offsets_that_it_committed(kafka: KafkaTools) -> None:
    create(kafka, "grouped", 2)
    produce(kafka, "grouped", LINES)
    reading = ("kafka-console-consumer", "--topic", "grouped", "--group", "readers", "--from-beginning", "--max-messages")
    assert sorted(kafka(*reading, "100").splitlines()) == sorted(LINES)
    assert sum(int(committed) for _, _, committed, _, _ in describe_group(kafka, "readers")) == 100
    assert [lag for *_, lag in describe_group(kafka, "readers")] == ["0", "0"]
    produce(kafka, "grouped", ["one more"])
    assert kafka(*reading, "1") == "one more\n"


def test_groups_are_listed_reset_and_deleted(kafka: KafkaTools) -> None:
    create(kafka, "reset", 1)
    produce(kafka, "reset", LINES)
    kafka("kafka-console-consumer", "--topic", "reset", "--group", "resetters", "--from-beginning", "--max-messages", "100")
    assert "resetters" in kafka("kafka-consumer-groups", "--list").splitlines()
    assert re.search(
        r"^resetters .* Empty +0", kafka("kafka-consumer-groups", "--describe", "--state", "--group", "resetters"), re.M
    )
    reset = ("--reset-offsets", "--group", "resetters", "--topic", "reset", "--to-offset", "40", "--execute")
    assert re.search(r"^resetters +reset +0 +40 *$", kafka("kafka-consumer-groups", *reset), re.MULTILINE)
    assert describe_group(kafka, "resetters") == [("reset", "0", "40", "100", "60")]
    said = kafka("kafka-consumer-groups", "--delete", "--group", "resetters")
    assert "Deletion of requested consumer groups ('resetters') was successful." in said
    assert "resetters" not in kafka("kafka-consumer-groups", "--list").splitlines()
    gone = "GroupIdNotFoundException: Group resetters not found."
    assert gone in kafka("kafka-consumer-groups", "--describe", "--group", "resetters")


def test_the_consumer_performance_tool_reports_its_rate(kafka: KafkaTools) -> None:
    create(kafka, "measured", 3)
    kafka(
        "kafka-producer-perf-test", "--topic", "measured", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"
    )
    head, row = kafka("kafka-consumer-perf-test", "--topic", "measured", "--num-records", "5000").splitlines()
    values = dict(zip(head.split(", "), row.split(", "), strict=True))
    assert int(values["data.consumed.in.nMsg"]) >= 5000


def test_the_verifiable_consumer_reads_and_commits(kafka: KafkaTools) -> None:
    create(kafka, "checked", 2)
    kafka("kafka-verifiable-producer", "--topic", "checked", "--max-messages", "500")
    said = kafka("kafka-verifiable-consumer", "--topic", "checked", "--group-id", "checkers", "--max-messages", "500")
    events = [json.loads(line) for line in said.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    assigned = [event["partitions"] for event in events if event["name"] == "partitions_assigned"]
    assert sorted((part["topic"], part["partition"]) for part in assigned[0]) == [("checked", 0), ("checked", 1)]
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert sum(int(committed) for _, _, committed, _, _ in describe_group(kafka, "checkers")) == 500


def test_the_producer_performance_tool_reports_its_rate(kafka: KafkaTools) -> None:
    create(kafka, "fast", 3)
    said = kafka(
        *("kafka-producer-perf-test", "--topic", "fast", "--num-records", "20000", "--record-size", "500"),
        *("--throughput", "-1", "--command-property", "acks=all", "compression.type=lz4"),
    )
    assert re.search(r"^20000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency", said, re.MULTILINE)
    offsets = kafka("kafka-get-offsets", "--topic", "fast").splitlines()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 20000


def test_the_verifiable_producer_gets_every_acknowledgement(kafka: KafkaTools) -> None:
    create(kafka, "verified", 2, "--config", "min.insync.replicas=2")
    said = kafka("kafka-verifiable-producer", "--topic", "verified", "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    acknowledged = [event["value"] for event in events if event["name"] == "producer_send_success"]
    assert sorted(map(int, acknowledged)) == list(range(500))
    assert {(event["sent"], event["acked"]) for event in events if event["name"] == "tool_data"} == {(500, 500)}
