"""Batches that are sent again are stored once, whatever happened to the answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.client import DataClient
from kraftlab.demo.lab import wait_until
from kraftlab.records.record_batch import Record, build_batch, decode_records

TOPIC = "once"


class CuttingProxy:
    """Passes bytes on in both directions. After `cut_next`, drops the next answer with its connection, and calls `at_cut`."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._cut: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.cuts = 0

    def cut_next(self, at_cut: Callable[[], object] = lambda: None) -> None:
        self._cut = at_cut

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """As `socket.create_connection`, by way of the proxy."""
        with self._lock:
            client = real_connect(self._server.getsockname(), timeout)
            accepted, _ = self._server.accept()
            try:
                broker = real_connect(address, timeout)
            except OSError:
                accepted.close()
                client.close()
                raise
            self._sockets += [accepted, broker]
        for source, target, is_answer in ((accepted, broker, False), (broker, accepted, True)):
            thread = threading.Thread(target=self._pass_on, args=(source, target, is_answer))
            thread.start()
            self._threads.append(thread)
        return client

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                at_cut = self._cut if is_answer else None
                if at_cut is not None:
                    self._cut = None
                    self.cuts += 1
                    at_cut()
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()


real_connect = socket.create_connection


@pytest.fixture(scope="module")
def lab(quorum_clusters: Callable[..., Any]) -> Iterator[Any]:
    """A controller and three brokers, and a partition on all of them."""
    with quorum_clusters(1, 3) as found:
        found.create_topic(TOPIC, [0, 1, 2], configs={"min.insync.replicas": "2"})
        yield found


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy()
    monkeypatch.setattr("kraftlab.client.data.socket.create_connection", proxy.connect)
    yield proxy
    proxy.close()


def one(value: str) -> bytes:
    return build_batch([Record(None, value.encode(), 1)])


def stored(data: DataClient, start: int) -> list[str]:
    """Values from an offset on."""
    found: list[str] = []
    offset, (_, end) = start, data.bounds(TOPIC, 0)
    while offset < end:
        records = list(decode_records(data.fetch(TOPIC, 0, offset).records))
        found += [(record.value or b"").decode() for record in records]
        offset = records[-1].offset + 1
    return found


def test_a_batch_whose_answer_is_lost_is_stored_once_also_beside_other_threads(lab: Any, proxy: CuttingProxy) -> None:
    with DataClient(lab.admin) as data:
        _, start = data.bounds(TOPIC, 0)

        def send(name: str) -> None:
            for number in range(10):
                if not number % 3:
                    proxy.cut_next()
                data.produce(TOPIC, 0, one(f"{name}{number}"))

        threads = [threading.Thread(target=send, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert proxy.cuts >= 2
        found = stored(data, start)
    for name in "ab":
        assert [value for value in found if value[0] == name] == [f"{name}{number}" for number in range(10)]


def test_a_batch_whose_leader_dies_before_the_answer_is_stored_once(lab: Any, proxy: CuttingProxy) -> None:
    leader = lab.partitions()[TOPIC, 0].leader_id
    with DataClient(lab.admin) as data:
        _, start = data.bounds(TOPIC, 0)
        data.produce(TOPIC, 0, one("first"))
        proxy.cut_next(lambda: lab.cluster.kill_node(leader))
        data.produce(TOPIC, 0, one("second"))
        data.produce(TOPIC, 0, one("third"))
        assert proxy.cuts == 1
        assert lab.partitions()[TOPIC, 0].leader_id != leader
        assert stored(data, start) == ["first", "second", "third"]
    lab.heal()
    wait_until("all replicas are in sync", lambda: len(lab.partitions()[TOPIC, 0].isr_nodes) == 3)


def test_batches_without_acknowledgement_are_sent_and_stored(lab: Any) -> None:
    with DataClient(lab.admin) as data:
        _, start = data.bounds(TOPIC, 0)
        for number in range(500):
            assert data.produce(TOPIC, 0, one(str(number)), acks=0).base_offset == -1
    with DataClient(lab.admin) as data:
        wait_until("they are there", lambda: data.bounds(TOPIC, 0)[1] == start + 500)
        assert stored(data, start) == [str(number) for number in range(500)]


def test_a_client_finds_offsets_by_time_and_the_ends_of_epochs(lab: Any) -> None:
    with DataClient(lab.admin) as data:
        _, start = data.bounds(TOPIC, 0)
        for at_ms in (2_000, 3_000):
            data.produce(TOPIC, 0, build_batch([Record(None, b"timed", at_ms)]))
        found = data.offset_for(TOPIC, 0, 2_001)
        assert (found.timestamp_ms, found.offset) == (3_000, start + 1)
        assert data.offset_for(TOPIC, 0, 3_001).offset == -1
        latest = data.offset_for(TOPIC, 0, -1)
        assert latest.offset == start + 2
        assert data.epoch_end(TOPIC, 0, latest.leader_epoch).end_offset == start + 2
