"""Counts of what clients and other brokers send here and fetch from here, in plain attributes that the event loop alone changes.

An event counts twice, for its topic and for all topics: so the numbers of all never fall. Partitions keep the counts of their
topic. A topic that is deleted takes its counts along; an event that comes late counts where nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.common.errors import ErrorCode

EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that do not count as a failure, as in Kafka: the client has to find the leader, or would be refused by any broker."""


class TopicTraffic:
    """Counts of one topic, or of all. A fetch or a produce request counts once for each of its partitions."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self.produce_requests = self.failed_produce_requests = 0
        self.fetch_requests = self.failed_fetch_requests = 0


class Traffic:
    """Counts of one broker. Bytes of a reassignment are among those of replication."""

    def __init__(self) -> None:
        self.total = TopicTraffic()
        self.topics: dict[str, TopicTraffic] = {}
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0
        self.isr_expands = self.isr_shrinks = self.failed_isr_updates = 0

    def of(self, topic: str) -> TopicTraffic:
        """The counts of a topic, which begin with the first call."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the counts of deleted topics."""
        for topic in topics:
            self.topics.pop(topic, None)

    def appended(self, topic: TopicTraffic, records: int, size_bytes: int) -> None:
        """Note records of a client."""
        for counts in (topic, self.total):
            counts.messages_in += records
            counts.bytes_in += size_bytes

    def produced(self, topic: TopicTraffic | None, error: int) -> None:
        """Note a client's request and its outcome; a `topic` that is not known is None."""
        failed = error != ErrorCode.NONE and error not in EXPECTED
        for counts in (topic, self.total):
            if counts is not None:
                counts.produce_requests += 1
                counts.failed_produce_requests += failed

    def asked(self, topic: TopicTraffic) -> None:
        """Note a fetch of a consumer."""
        topic.fetch_requests += 1
        self.total.fetch_requests += 1

    def refused(self, topic: TopicTraffic, error: int) -> None:
        """Note the error that answers a consumer's fetch."""
        if error not in EXPECTED:
            topic.failed_fetch_requests += 1
            self.total.failed_fetch_requests += 1

    def consumed(self, topic: TopicTraffic, size_bytes: int) -> None:
        """Note records for a consumer."""
        topic.bytes_out += size_bytes
        self.total.bytes_out += size_bytes

    def replicated_here(self, size_bytes: int, is_added: bool) -> None:
        """Note records that a replica here has fetched; `is_added`: by a reassignment."""
        self.replication_bytes_in += size_bytes
        if is_added:
            self.reassignment_bytes_in += size_bytes

    def replicated_from_here(self, size_bytes: int, is_added: bool) -> None:
        """Note records for another broker's replica."""
        self.replication_bytes_out += size_bytes
        if is_added:
            self.reassignment_bytes_out += size_bytes
