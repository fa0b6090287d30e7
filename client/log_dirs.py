"""Questions about log directories to all brokers at once.

Theory of operation. Only a broker knows its directories, so each broker is asked, in parallel, and the questions share one
deadline. A broker that does not answer in time, refuses, or is down does not hold up or hide the others: it is in `silent`, with
the reason. An answer is complete if `silent` is empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError

from .caller import Caller
from .errors import ClusterUnreachable
from .names import names_in, partition_in
from .results import (
    AllLogDirs,
    AllReplicaLogDirs,
    BrokerLogDirs,
    KeptReplicaCopy,
    LogDirMove,
    LogDirMoves,
    ReplicaLogDirs,
    log_dirs_of,
)

THREADS_MAX = 64
ASK_TIMEOUT_MS = 5000
"""Time that all brokers together get by default. A broker answers in milliseconds, or it is in trouble."""

TopicPartition = tuple[str, int]
Replica = tuple[str, int, int]
"""Topic, partition, broker."""


class LogDirFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas to describe: of whole topics and of single partitions (None, None: of all), in these directories (paths or ids;
    empty: in all). `only_filling`: replicas that are being filled, by a move or from their leader.
    """

    topics: Sequence[str] | None = None
    partitions: Sequence[TopicPartition] | None = None
    log_dirs: Sequence[str] = ()
    only_filling: bool = False

    def request(self) -> pb.DescribeLogDirsRequest:
        request = pb.DescribeLogDirsRequest(log_dirs=names_in(self.log_dirs), only_filling=self.only_filling)
        if self.topics is not None or self.partitions is not None:
            topics = {name: pb.DescribableLogDirTopic(topic=name, all_partitions=True) for name in names_in(self.topics or ())}
            for name, index in map(partition_in, self.partitions or ()):
                topics.setdefault(name, pb.DescribableLogDirTopic(topic=name)).partitions.append(index)
            request.topics.CopyFrom(pb.DescribableLogDirTopics(values=topics.values()))
        return request


EVERYTHING = LogDirFilter()
NOWHERE = ReplicaLogDirs()


class LogDirCalls(Caller):
    """The part of `AdminClient` that asks many brokers."""

    def all_log_dirs(
        self,
        wanted: LogDirFilter = EVERYTHING,
        *,
        brokers: Iterable[int] | None = None,
        timeout_ms: int = ASK_TIMEOUT_MS,
    ) -> AllLogDirs:
        """Return the log directories of brokers, all registered ones or these, asked in parallel.

        `timeout_ms` is for all of them together. ApiError, ClusterUnreachable: no node names the brokers.
        """
        if brokers is None:
            members = self._members(include_fenced_brokers=True, timeout_ms=timeout_ms).brokers
            brokers = [broker.broker_id for broker in members]
        return self._ask(brokers, wanted, timeout_ms)

    def replica_log_dirs(self, replicas: Iterable[Replica], *, timeout_ms: int = ASK_TIMEOUT_MS) -> AllReplicaLogDirs:
        """Return the current and the future log directory of replicas (topic, partition, broker), with their lags: Kafka's
        describeReplicaLogDirs. A replica that its broker does not have is there without directories. As `all_log_dirs`.
        """
        asked = sorted({*replicas})
        wanted = LogDirFilter(partitions=sorted({(topic, index) for topic, index, _ in asked}))
        described = self.all_log_dirs(wanted, brokers={broker for _, _, broker in asked}, timeout_ms=timeout_ms)
        found = replicas_of(described)
        known = [replica for replica in asked if replica[2] not in described.silent]
        return AllReplicaLogDirs({replica: found.get(replica, NOWHERE) for replica in known}, described.silent)

    def log_dir_moves(
        self, *, topics: Sequence[str] | None = None, brokers: Iterable[int] | None = None, timeout_ms: int = ASK_TIMEOUT_MS
    ) -> LogDirMoves:
        """Return the replicas that are being filled anywhere, by a move between directories or from their leader. As
        `all_log_dirs`.
        """
        return moves_of(self.all_log_dirs(LogDirFilter(topics=topics, only_filling=True), brokers=brokers, timeout_ms=timeout_ms))

    def _ask(self, brokers: Iterable[int], wanted: LogDirFilter, timeout_ms: int) -> AllLogDirs:
        deadline = time.monotonic() + timeout_ms / 1000

        def ask(broker_id: int) -> BrokerLogDirs | str:
            left = int((deadline - time.monotonic()) * 1000)
            if left <= 0:
                return f"was not asked within {timeout_ms / 1000:g} s"
            try:
                response = self.call_broker(broker_id, pb.DescribeLogDirsResponse, wanted.request(), timeout_ms=left)
            except ApiError as error:
                return error.message or str(error)
            except ClusterUnreachable as error:
                return str(error)
            limit = response.move_limit if response.HasField("move_limit") else None
            return BrokerLogDirs(broker_id, log_dirs_of(response), limit)

        ids = sorted({*brokers})
        with ThreadPoolExecutor(min(max(len(ids), 1), THREADS_MAX), "log-dirs") as threads:
            answers = dict(zip(ids, threads.map(ask, ids), strict=True))
        return AllLogDirs(
            {broker: answer for broker, answer in answers.items() if isinstance(answer, BrokerLogDirs)},
            {broker: answer for broker, answer in answers.items() if isinstance(answer, str)},
        )


def replicas_of(described: AllLogDirs) -> dict[Replica, ReplicaLogDirs]:
    """Return the directories of each replica, by topic, partition and broker."""
    found: dict[Replica, ReplicaLogDirs] = {}
    for broker_id, broker in described.brokers.items():
        for log_dir in broker.log_dirs:
            for each in log_dir.replicas:
                key = (each.topic, each.partition_index, broker_id)
                before, lag = found.get(key, NOWHERE), each.offset_lag if each.offset_lag >= 0 else None
                if each.is_future_key:
                    found[key] = msgspec.structs.replace(before, future_log_dir=log_dir.log_dir, future_offset_lag=lag)
                else:
                    found[key] = msgspec.structs.replace(before, current_log_dir=log_dir.log_dir, current_offset_lag=lag)
    return dict(sorted(found.items()))


def doubts_of(described: AllLogDirs) -> dict[TopicPartition, dict[int, KeptReplicaCopy]]:
    """Return the replicas that their brokers keep offline, because their directories are in doubt: by partition and broker."""
    found: dict[TopicPartition, dict[int, KeptReplicaCopy]] = {}
    for broker_id, broker in described.brokers.items():
        for copy in (copy for log_dir in broker.log_dirs for copy in log_dir.kept_copies if copy.doubt):
            copies = found.setdefault((copy.topic_name, copy.partition_index), {})
            copies[broker_id] = max(copies.get(broker_id, copy), copy, key=lambda each: each.log_end_offset or 0)
    return dict(sorted(found.items()))


def promotion_of(copies: Mapping[int, KeptReplicaCopy]) -> str:
    """Return the next step for a partition of which all replicas are in doubt."""
    ends = {broker: copy.log_end_offset for broker, copy in copies.items() if copy.log_end_offset is not None}
    if not ends:
        return "move its directory back on one broker and restart that broker"
    best = max(ends, key=lambda broker: (ends[broker], -broker))
    partition = f"{copies[best].topic_name}-{copies[best].partition_index}"
    which = f", whose log end offset {ends[best]} is the highest" if len(ends) > 1 else ""
    return f"promote the copy on broker {best}{which}: kraftlab log-dirs --promote {partition} --broker {best}"


def moves_of(described: AllLogDirs) -> LogDirMoves:
    """Return the replicas that are being filled."""
    found: list[LogDirMove] = []
    for broker in described.brokers.values():
        places = [(log_dir.log_dir, replica) for log_dir in broker.log_dirs for replica in log_dir.replicas]
        left = sum(each.bytes_left or 0 for _, each in places if each.is_future_key)
        for path, each in sorted(places, key=lambda place: (place[1].topic, place[1].partition_index)):
            if each.is_future_key:
                found.append(LogDirMove(broker.broker_id, path, each, broker.move_limit, left))
            elif each.started_ms is not None:
                found.append(LogDirMove(broker.broker_id, path, each))
    return LogDirMoves(tuple(found), described.silent)
