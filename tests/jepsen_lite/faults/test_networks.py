"""Networks of runs, as sockets of nodes see them; tested if this machine supports it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jepsen_lite.faults import ledger
from jepsen_lite.faults.ledger import Ledger
from jepsen_lite.faults.networks.network import HeldNetwork, own_network
from jepsen_lite.faults.networks.probe import datagrams, try_out
from kraftlab.lab import ClusterError, namespaces
from kraftlab.lab.links.shape import Cut, LinkShape

pytestmark = pytest.mark.usefixtures("home")

A, B, C = 3000, 3001, 0
PORT = 21_000
PATIENCE_S = 5.0


@pytest.fixture
def network(netns: str, home: Path) -> Iterator[HeldNetwork]:
    if os.geteuid() != 0:
        pytest.skip("only root enters the namespaces of others")
    with Ledger() as book, HeldNetwork((A, B, C), book, seed=7) as made:
        yield made
    assert not list(home.iterdir())


@contextmanager
def connected(network: HeldNetwork, source: int, target: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the two ends of a connection that the source has opened."""
    with (
        namespaces.socket_in(network.namespace(target), socket.SOCK_STREAM) as listener,
        namespaces.socket_in(network.namespace(source), socket.SOCK_STREAM) as opener,
    ):
        opener.settimeout(PATIENCE_S)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((network.host(target), PORT))
        listener.listen()
        opener.connect((network.host(target), PORT))
        with listener.accept()[0] as accepted:
            accepted.settimeout(PATIENCE_S)
            yield opener, accepted


def test_a_network_that_works_passes_its_own_trial_both_ways(network: HeldNetwork) -> None:
    try_out(network, A, C)
    try_out(network, C, B)


def test_each_node_has_its_own_namespace_and_address(network: HeldNetwork) -> None:
    names = {os.readlink(network.namespace(node)) for node in (A, B, C)}
    assert len({*names, os.readlink(namespaces.OWN)}) == 4
    assert len({network.host(node) for node in (A, B, C)}) == 3
    with pytest.raises(ClusterError, match="node 3002 is not one of the nodes of this network"):
        network.host(3002)
    with pytest.raises(ClusterError, match="node 3002 is not one of the nodes of this network"):
        network.cut([(A, B), (A, 3002)], Cut.HOLD)
    try_out(network, A, B)


def test_packets_held_by_a_cut_come_when_it_is_healed_and_the_other_direction_works(network: HeldNetwork) -> None:
    with connected(network, A, B) as (opener, accepted):
        network.cut([(A, B)], Cut.HOLD)
        opener.send(b"late")
        accepted.send(b"heard")
        assert opener.recv(16) == b"heard"
        accepted.setblocking(False)
        with pytest.raises(BlockingIOError):
            accepted.recv(16)
        opener.close()
        network.heal([(A, B)])
        accepted.settimeout(PATIENCE_S)
        assert accepted.recv(16) == b"late"
        assert accepted.recv(16) == b""


def test_a_cut_that_resets_breaks_connections_and_refuses_new_ones_until_it_is_healed(network: HeldNetwork) -> None:
    with connected(network, A, B) as (opener, _):
        network.cut([(A, B)], Cut.RESET)
        opener.send(b"refused")
        with pytest.raises(ConnectionResetError):
            opener.recv(16)
    with pytest.raises(ConnectionRefusedError), connected(network, A, B):
        pytest.fail("a connection over a link that refuses")
    with connected(network, C, B) as (opener, accepted):
        network.heal_all()
        opener.send(b"from another")
        assert accepted.recv(16) == b"from another"
    try_out(network, A, B)


def test_links_that_are_cut_stay_cut_while_others_are_shaped_and_healed(network: HeldNetwork) -> None:
    network.cut([(A, B), (B, A)], Cut.HOLD)
    network.shape([(A, B), (A, C)], LinkShape(duplicate=1))
    network.heal([(A, C)])
    with datagrams(network, A, B) as (sending, receiving), datagrams(network, A, C) as (other, hearing):
        sending.send(b"lost")
        other.send(b"once")
        assert hearing.recv(8) == b"once"
        receiving.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiving.recv(8)
    network.heal_all(drop=True)
    try_out(network, A, B)
    try_out(network, B, A)


@pytest.mark.parametrize(
    "shape",
    [
        LinkShape(loss=0.3),
        LinkShape(duplicate=0.4),
        LinkShape(reorder=0.4),
        LinkShape(delay_ms=30, jitter_ms=20, loss=0.1, duplicate=0.1),
    ],
    ids=repr,
)
def test_a_programs_switch_does_to_packets_what_follows_from_the_seed(network: HeldNetwork, shape: LinkShape) -> None:
    chance, count = random.Random(f"frames 7 {A} {B}"), 100
    copies = [len(shape.deliveries(chance, 0.0, 0.0)[0]) for _ in range(count)]
    network.shape([(A, B)], shape)
    with datagrams(network, A, B) as (sending, receiving):
        began = time.monotonic()
        for number in range(count):
            sending.send(b"%d" % number)
        found = [int(receiving.recv(8)) for _ in range(sum(copies))]
        took_s = time.monotonic() - began
        network.heal_all()
        sending.send(b"end")
        assert receiving.recv(8) == b"end"
    assert [found.count(number) for number in range(count)] == copies
    assert (found == sorted(found)) == (not shape.duplicate and not shape.reorder)
    assert took_s >= shape.delay_ms / 1000


def test_a_network_with_a_killed_holder_reports_it(network: HeldNetwork) -> None:
    holder = int(network.namespace(A).split("/")[2])
    os.kill(holder, signal.SIGKILL)
    with pytest.raises(ClusterError, match=rf"the process of the network \({holder}\) has ended"):
        network.cut([(A, B)], Cut.HOLD)


HARNESS = """
import sys
from jepsen_lite.faults.ledger import Ledger
from jepsen_lite.faults.networks.network import HeldNetwork, own_network
with Ledger() as book, HeldNetwork((1, 2), book, observer=own_network()) as network:
    print(network.namespace(1).split("/")[2], *(network.namespace(node) for node in (1, 2)), own_network(), flush=True)
    sys.stdin.read()
"""


def inhabited() -> set[str]:
    """Return the namespaces that processes are in, or have open."""
    found = set()
    for link in (*Path("/proc").glob("[0-9]*/ns/net"), *Path("/proc").glob("[0-9]*/fd/*")):
        with suppress(OSError):
            found.add(os.readlink(link))
    return {name for name in found if name.startswith("net:")}


@pytest.mark.parametrize("stands_still", [False, True])
def test_nothing_is_left_of_the_network_of_a_harness_that_was_killed(
    netns: str, home: Path, tmp_path: Path, stands_still: bool
) -> None:
    """A holder ends with its harness, silently; `clean` ends a stopped holder."""
    words = (sys.executable, "-c", HARNESS)
    with (
        open(tmp_path / "errors", "wb") as errors,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as harness,
    ):
        assert harness.stdout is not None
        pid, *paths = harness.stdout.readline().split()
        names = {os.readlink(path) for path in paths}
        assert len(names) == 3 and names <= inhabited() and os.readlink(namespaces.OWN) not in names
        if stands_still:
            os.kill(int(pid), signal.SIGSTOP)
        harness.kill()
    if stands_still:
        assert ledger.began(int(pid)) is not None
        (cleaned,) = ledger.clean()
        assert (cleaned.undone, cleaned.faults) == ((f"process {pid} (network)",), ())
    deadline = time.monotonic() + PATIENCE_S
    while names & inhabited() or ledger.began(int(pid)) is not None:
        assert time.monotonic() < deadline, "processes are still in these networks"
        time.sleep(0.01)
    assert [cleaned.undone for cleaned in ledger.clean()] == ([] if stands_still else [()])
    assert not list(home.iterdir())
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
def test_a_process_with_threads_does_not_move(home: Path) -> None:
    before, over = os.readlink(namespaces.OWN), threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    try:
        with pytest.raises(ClusterError, match="this process has several threads, which cannot move together"):
            own_network()
    finally:
        over.set()
        waiting.join()
    assert os.readlink(namespaces.OWN) == before


def test_a_namespace_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    with pytest.raises(OSError, match=r"setns: (Invalid argument|Operation not permitted).*none"):
        namespaces.socket_in(str(tmp_path / "none"), socket.SOCK_DGRAM)
