"""Apache Kafka's console consumer and kafka-consumer-groups, and franz-go, with groups of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kraftlab.lab.local import LocalCluster

from .conftest import KafkaTools

LINES = [f"line {number}" for number in range(40)]
TIMEOUT_S = 90


def create(kafka: KafkaTools, topic: str) -> None:
    kafka("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    kafka("kafka-console-producer", "--topic", topic, stdin="".join(f"{line}\n" for line in LINES))


def test_a_group_is_read_described_reset_and_deleted(kafka: KafkaTools) -> None:
    create(kafka, "grouped")
    where = ("--topic", "grouped", "--group", "readers", "--from-beginning", "--max-messages", str(len(LINES)))
    assert sorted(kafka("kafka-console-consumer", *where).splitlines()) == sorted(LINES)

    def groups(*arguments: str) -> list[list[str]]:
        lines = kafka("kafka-consumer-groups", *arguments).splitlines()
        return [line.split() for line in lines if line and "active members" not in line]

    assert ["readers"] in groups("--list")
    _, *rows = groups("--describe", "--group", "readers")
    assert sorted((row[1], row[2]) for row in rows) == [("grouped", "0"), ("grouped", "1")]
    assert sum(int(row[3]) for row in rows) == len(LINES)
    assert {row[5] for row in rows} == {"0"}, "nothing is left to read"
    reset = groups("--reset-offsets", "--group", "readers", "--topic", "grouped", "--to-earliest", "--execute")
    assert reset[1:] == [["readers", "grouped", "0", "0"], ["readers", "grouped", "1", "0"]]
    deleted = kafka("kafka-consumer-groups", "--delete", "--group", "readers")
    assert "('readers') was successful" in deleted
    assert ["readers"] not in groups("--list")


def test_two_members_of_franz_go_share_a_topic(kafka: KafkaTools, franz_go: Path, cluster: LocalCluster) -> None:
    create(kafka, "franz-grouped")
    call = [str(franz_go), "group", cluster.kafka_bootstrap_servers, "franz-grouped", str(len(LINES))]
    done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
