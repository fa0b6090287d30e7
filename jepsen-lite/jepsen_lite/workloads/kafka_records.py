"""The operations of the workload `records`, executed by kafka-python.

A process is one idempotent producer, one consumer without a group that reads a partition from its beginning, and one admin
client. `append` sends a record once; kafka-python itself sends it again until the timeout. `agree` compares replicas, for which
the Kafka protocol has no request: the harness asks the brokers itself.
"""

from __future__ import annotations

from typing import Any, cast

from kafka import KafkaAdminClient, TopicPartition

from ..generators import Invocation
from ..history import FAIL, OK
from ..workload import Completion, KafkaPort, Port
from .kafka_admin import completion
from .records import REPLICAS, ProducingClient


class KafkaRecords(ProducingClient):
    """The client of one process."""

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        topic, kafka = invocation.key, cast(KafkaPort, port)
        match invocation.f:
            case "append":
                value = str(invocation.value)
                key = value.partition(":")[0].encode()
                return Completion(OK, await kafka.in_kafka(lambda clients: clients.append(topic, key, value.encode())))
            case "get":
                records = await kafka.in_kafka(lambda clients: clients.read(topic))
                return Completion(OK, [list(record) for record in records])
            case "move":
                return await kafka.in_kafka(lambda clients: clients.ask(lambda admin: self._moved(admin, topic)))
            case "reassign":
                brokers = self._caller.random.sample(sorted(port.brokers), min(REPLICAS, len(port.brokers)))
                return await kafka.in_kafka(lambda clients: clients.ask(lambda admin: _reassigned(admin, topic, brokers)))
        return await super().invoke(invocation, port)

    def _moved(self, admin: KafkaAdminClient, topic: str) -> Completion:
        """Let one broker move its replica to another of its directories. The answer means that the move has begun."""
        described = admin.describe_topics([topic])[0]["partitions"][0]
        broker = self._caller.random.choice(described["replica_nodes"])
        [found] = admin.describe_log_dirs(brokers=[broker])
        dirs: dict[str, Any] = {each["log_dir"]: each["topics"] for each in found["log_dirs"] if not each["error_code"]}
        others = sorted(path for path, topics in dirs.items() if topic not in {each["name"] for each in topics})
        if len(others) == len(dirs) or not others:
            return Completion(FAIL, error="not sent, the broker has no replica or no other directory", node=broker)
        path = self._caller.random.choice(others)
        [error] = admin.alter_replica_log_dirs({(topic, 0, broker): path}).values()
        return completion(error.errno, path)


def _reassigned(admin: KafkaAdminClient, topic: str, brokers: list[int]) -> Completion:
    """Put the partition on these brokers. The answer means that the reassignment has begun."""
    [error] = admin.alter_partition_reassignments({TopicPartition(topic, 0): brokers}).values()
    return completion(0 if error is None else error.errno, brokers)
