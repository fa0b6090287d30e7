"""A producer and a consumer of kafka-python, on a topic that moves while they run.

The producer appends numbered records to each partition in turn, with acks=all and as an idempotent producer, which is the
default of kafka-python. The consumer reads all partitions from their beginnings. Each has a thread of its own. At the end the
consumer reads up to the ends of the logs, and must have received the records of each partition once, in the order of sending.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kraftlab.common.extras import not_installed

from .lab import StoryError, TopicPartition

TOPIC = "kafka-python-demo"
BEFORE: dict[TopicPartition, tuple[int, ...]] = {(TOPIC, 0): (0, 1), (TOPIC, 1): (1, 2)}
"""Partition → the brokers with its replicas."""
AFTER: dict[TopicPartition, tuple[int, ...]] = {(TOPIC, 0): (2, 3), (TOPIC, 1): (3, 0)}
MISSING = f"no Kafka client takes part: {not_installed('kafka-python', 'demo')}"
_PAUSE_S = 0.008
"""Pause between records."""
_WITHIN_S = 30.0
"""Time for the last records to be acknowledged, and to be read."""


def is_installed() -> bool:
    return importlib.util.find_spec("kafka") is not None


class KafkaClients:
    """Creates its topic and begins to produce and consume. Close it in any case; `finish` gives the result.

    All clients get the `options` of the constructors of kafka-python, such as a login.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        logging.getLogger("kafka").addHandler(logging.NullHandler())  # new leaders are expected
        self._options = {"bootstrap_servers": bootstrap_servers.split(","), **options}
        with self._admin() as admin:
            admin.create_topics({TOPIC: {"assignments": {index: replicas for (_, index), replicas in BEFORE.items()}}})
        self._produced_enough = threading.Event()
        self._may_end = threading.Event()
        self._abandoned = threading.Event()
        self._threads = ThreadPoolExecutor(2, "kafka-python")
        self._producing = self._threads.submit(self._produce)
        self._consuming = self._threads.submit(self._consume)

    def reassign(self) -> None:
        """Start to move both partitions to other brokers."""
        from kafka import TopicPartition

        targets = {TopicPartition(*partition): list(replicas) for partition, replicas in AFTER.items()}
        with self._admin() as admin:
            refused = [error for error in admin.alter_partition_reassignments(targets).values() if error is not None]
        if refused:
            raise StoryError(f"{TOPIC} cannot be reassigned: {refused[0].__name__}")

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        """Return an admin client. StoryError if an operation in the context fails."""
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            with KafkaAdminClient(**self._options) as admin:
                yield admin
        except KafkaError as error:
            raise StoryError(f"kafka-python's admin client failed for {TOPIC}: {type(error).__name__}: {error}") from error

    def finish(self) -> tuple[bool, str]:
        """Stop the producer, let the consumer read to the end; return the result of the comparison and its text."""
        from kafka.errors import KafkaError

        self._produced_enough.set()
        try:
            produced = self._producing.result()
            self._may_end.set()
            consumed = self._consuming.result(_WITHIN_S)
        except KafkaError as error:
            return False, f"{type(error).__name__}: {error}"
        except TimeoutError:
            return False, f"{sum(map(len, produced))} records produced, not all consumed within {_WITHIN_S:.0f} s"
        return compared(produced, consumed)

    def close(self) -> None:
        """End both threads."""
        for event in (self._abandoned, self._produced_enough, self._may_end):
            event.set()
        self._threads.shutdown()

    def _produce(self) -> list[list[bytes]]:
        """Send records until there are enough; return the values of each partition. KafkaError if one is not acknowledged."""
        from kafka import KafkaProducer

        sent: list[list[bytes]] = [[] for _ in BEFORE]
        futures: list[Any] = []
        producer = KafkaProducer(**self._options)
        try:
            while not self._produced_enough.wait(_PAUSE_S):
                number = len(futures)
                index = number % len(sent)
                value = b"record %d" % number
                futures.append(producer.send(TOPIC, value, partition=index))
                sent[index].append(value)
            if not self._abandoned.is_set():
                producer.flush(_WITHIN_S)
                for future in futures:
                    future.get(0)
        finally:
            producer.close(1 if self._abandoned.is_set() else _WITHIN_S)
        return sent

    def _consume(self) -> list[list[bytes]]:
        """Read until the records may end, then to the ends of the logs; return the values of each partition."""
        from kafka import KafkaConsumer, TopicPartition

        partitions = [TopicPartition(*partition) for partition in BEFORE]
        received: list[list[bytes]] = [[] for _ in partitions]
        with KafkaConsumer(**self._options, enable_auto_commit=False) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            ends: dict[TopicPartition, int] = {}
            while not self._abandoned.is_set():
                for partition, records in consumer.poll(100).items():
                    received[partition.partition].extend(record.value for record in records)
                if self._may_end.is_set() and not ends:
                    ends = consumer.end_offsets(partitions)
                if ends and all(consumer.position(partition) >= ends[partition] for partition in partitions):
                    break
        return received


def compared(produced: Sequence[Sequence[bytes]], consumed: Sequence[Sequence[bytes]]) -> tuple[bool, str]:
    """Return the result of the comparison, and a text that says what was found. Records are listed by partition."""
    count = sum(map(len, produced))
    for index, (sent, received) in enumerate(zip(produced, consumed, strict=True)):
        if list(received) != list(sent):
            lost, extra = len(set(sent) - set(received)), len(received) - len(set(received))
            kind = f"{lost} are missing, {extra} came twice" if lost or extra else "another order, or others"
            return False, f"partition {index}: {len(sent)} records produced, {len(received)} consumed: {kind}"
    return count > 0, f"{count} records produced, all consumed once, in order"
