"""Controllers are killed under clients that create topics: each creation is carried out once, and answered as carried out."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, answer_of
from kraftlab.common.errors import ApiError
from kraftlab.demo.lab import wait_until

KILLS = 2
PATIENCE_MS = 20_000

Create = Callable[[str], Any]


class Creator:
    """Creates topics one after the other until it is stopped. `answers`: each one's code, in order."""

    def __init__(self, prefix: str, create: Create) -> None:
        self.answers: list[tuple[str, int]] = []
        self.failure: Exception | None = None
        self._names = (f"{prefix}-{number}" for number in itertools.count())
        self._create = create
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                name = next(self._names)
                self.answers.append((name, self._create(name).topics[0].error_code))
        except (ApiError, ClusterUnreachable) as error:
            self.failure = error

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_MS / 1000)


def creation(name: str, **header: Any) -> pb.CreateTopicsRequest:
    topic = pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return pb.CreateTopicsRequest(header=pb.RequestHeader(**header), topics=[topic])


class ThroughBrokers:
    """Sends a creation under one id from broker to broker until one has an answer."""

    def __init__(self, lab: Any) -> None:
        self._client = AdminClient(lab.cluster.bootstrap_servers)
        self._brokers = itertools.cycle([lab.cluster.node(broker_id).grpc for broker_id in lab.cluster.broker_ids])
        self._id = uuid.uuid4().bytes
        self._sequence = 0

    def create(self, name: str) -> Any:
        self._sequence += 1
        first = self.send(name, self._sequence)
        again = self.send(name, self._sequence)
        assert again.topics == first.topics
        assert again.header.metadata_offset == first.header.metadata_offset
        return again

    def send(self, name: str, sequence: int) -> Any:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            request = creation(name, request_id=pb.RequestId(client_id=self._id, sequence=sequence), timeout_ms=2_000)
            try:
                return self._client.call_at(next(self._brokers), pb.CreateTopicsResponse, request, timeout_ms=3_000)
            except (ApiError, ClusterUnreachable):
                if time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def creators(lab: Any) -> Iterator[tuple[Creator, Creator]]:
    """A creator that uses AdminClient, and one that uses brokers only. Their topics are deleted at the end."""
    through_brokers = ThroughBrokers(lab)
    with AdminClient(lab.cluster.bootstrap_servers, timeout_ms=PATIENCE_MS) as client:
        both = (
            Creator("once", lambda name: answer_of(lambda: client.call(pb.CreateTopicsResponse, creation(name)))),
            Creator("once-through-brokers", through_brokers.create),
        )
        try:
            yield both
        finally:
            for creator in both:
                creator.stop()
            through_brokers.close()
    names = sorted(topic.name for topic in lab.admin.describe_topics().values() if topic.name.startswith("once"))
    lab.admin.delete_topics(names)


def test_killed_controllers_make_no_creation_fail_or_happen_twice(lab: Any, creators: tuple[Creator, Creator]) -> None:
    def have_gone_on() -> bool:
        return all(creator.failure or len(creator.answers) >= count + 3 for creator, count in zip(creators, counts, strict=True))

    counts = [0, 0]
    for _ in range(KILLS):
        wait_until("both create topics", have_gone_on)
        killed = lab.admin.describe_cluster(linearizable=True).leader_id
        lab.cluster.kill_node(killed)
        counts = [len(creator.answers) for creator in creators]
        wait_until("both go on", have_gone_on)
        lab.cluster.start_node(killed)
        lab.cluster.wait_ready()
        counts = [len(creator.answers) for creator in creators]
    for creator in creators:
        creator.stop()
        assert creator.failure is None
        assert {code for _, code in creator.answers} == {0}
    known = {*lab.admin.describe_topics(linearizable=True)}
    assert {name for creator in creators for name, _ in creator.answers} <= known
    assert lab.metadata_is_equal_everywhere()


def test_an_answer_is_remembered_by_controllers_that_were_all_restarted_from_snapshots(lab: Any) -> None:
    request_id = pb.RequestId(client_id=uuid.uuid4().bytes, sequence=1)
    first = lab.admin.call(pb.CreateTopicsResponse, creation("answered", request_id=request_id))
    controllers = [lab.cluster.node(node_id) for node_id in lab.cluster.controller_ids]
    for node in controllers:
        wait_until("it has the change", lambda at=node.grpc: lab.metadata_of(at).offset >= first.header.metadata_offset)
        lab.admin.call_at(node.grpc, pb.CreateSnapshotResponse, pb.CreateSnapshotRequest())
    for node_id in lab.cluster.controller_ids:
        lab.cluster.kill_node(node_id)
    for node_id in lab.cluster.controller_ids:
        lab.cluster.start_node(node_id)
    again = lab.admin.call(pb.CreateTopicsResponse, creation("answered", request_id=request_id))
    assert again.topics == first.topics
    assert again.header.metadata_offset == first.header.metadata_offset
    lab.admin.delete_topics(["answered"])
