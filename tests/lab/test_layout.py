from __future__ import annotations

import contextlib
import fcntl
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import random_uuid, to_text
from kraftlab.config import meta_properties, storage
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import load_any, load_broker, load_controller
from kraftlab.lab import ClusterError, LocalCluster, cluster_plan, layout
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import Order
from kraftlab.lab.faults.server import ControlServer
from kraftlab.lab.links.shape import Cut, LinkShape
from kraftlab.lab.locking import is_in_use, lock
from kraftlab.lab.ports import PortClaims, claims_directory, is_claimed, owner_of

pytestmark = pytest.mark.cluster


def test_a_new_directory_gets_nodes_racks_and_ports(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 3, 4, 2)
    assert [node.node_id for node in plan.nodes] == [3000, 3001, 3002, 0, 1, 2, 3]
    assert [node.rack for node in plan.brokers] == ["rack-0", "rack-1", "rack-2", "rack-3"]
    ports = [port for node in plan.nodes for port in node.ports]
    assert len(set(ports)) == 28
    assert max(ports) < 32768


def test_the_same_directory_gives_the_same_cluster(tmp_path: Path) -> None:
    first = layout.write(tmp_path, layout.plan(tmp_path, 1, 2, 1), {})
    assert layout.plan(tmp_path, None, None, None) == first
    assert layout.plan(tmp_path, 1, 2, 1) == first
    with pytest.raises(ClusterError, match="holds a cluster with 2 brokers, not 3; start it with 2"):
        layout.plan(tmp_path, 1, 3, 1)


def test_what_is_written_is_what_nodes_read(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 3, 1, 2, voters_in_log=False)
    layout.write(tmp_path, plan, {"log.segment.bytes": "1048576"})
    controller = load_controller(tmp_path / "controller-3001" / "server.properties")
    assert controller.voters.ids() == (3000, 3001, 3002)
    broker = load_broker(tmp_path / "broker-0" / "server.properties")
    assert broker.log_dirs == (tmp_path / "broker-0" / "d0", tmp_path / "broker-0" / "d1")
    assert broker.metadata_log_dir == tmp_path / "broker-0" / "metadata"
    assert (broker.rack, broker.log_segment_bytes) == ("rack-0", 1048576)
    assert all((path / "meta.properties").exists() for path in broker.all_directories())


def test_nodes_of_an_older_cluster_get_ports_for_kafka_clients_and_metrics(tmp_path: Path) -> None:
    first = layout.write(tmp_path, layout.plan(tmp_path, 1, 2, 1), {})
    path = tmp_path / "cluster.json"
    held = msgspec.json.decode(path.read_bytes())
    for node in held["nodes"]:
        del node["kafka_port"], node["metrics_port"]
    path.write_bytes(msgspec.json.encode(held))
    plan = layout.write(tmp_path, layout.plan(tmp_path, None, None, None), {})
    assert all(node.kafka_port is not None and node.metrics_port is not None for node in plan.nodes)
    assert len({port for node in plan.nodes for port in node.ports}) == 12
    assert [node.peer for node in plan.nodes] == [node.peer for node in first.nodes]
    assert layout.plan(tmp_path, None, None, None) == plan


def test_the_first_broker_keeps_the_kafka_port_that_it_was_given(tmp_path: Path) -> None:
    [port] = cluster_plan.free_ports(1)
    before = layout.write(tmp_path, layout.plan(tmp_path, 1, 2, 1), {})
    plan = layout.write(tmp_path, layout.plan(tmp_path, None, None, None, kafka_port=port), {})
    assert plan.brokers[0].kafka == Endpoint("127.0.0.1", port)
    assert plan.brokers[1] == before.brokers[1]
    assert layout.plan(tmp_path, None, None, None) == plan == layout.plan(tmp_path, None, None, None, kafka_port=port)
    assert load_broker(tmp_path / "broker-0" / "server.properties").kafka == Endpoint("localhost", port)


def test_a_kafka_port_that_is_not_free_is_refused_with_the_next_step(tmp_path: Path) -> None:
    plan = layout.write(tmp_path, layout.plan(tmp_path, 1, 2, 1), {})
    with pytest.raises(ClusterError, match="is one of broker-1 already; give another --kafka-port"):
        layout.plan(tmp_path, None, None, None, kafka_port=plan.brokers[1].kafka_port)
    with pytest.raises(ClusterError, match="this cluster has no broker; leave --kafka-port out"):
        layout.plan(tmp_path / "other", 1, 0, 1, kafka_port=9092)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"127.0.0.1:{port}: Address already in use; give another --kafka-port"):
            layout.plan(tmp_path, None, None, None, kafka_port=port)
    other = r"belongs to the cluster that runs on .*/up; stop that one, or give another --kafka-port"
    with contextlib.closing(LocalCluster(tmp_path / "up", 1, 1, 1)) as up, pytest.raises(ClusterError, match=other):
        layout.plan(tmp_path, None, None, None, kafka_port=up.node(0).kafka_port)


def test_writing_again_keeps_the_directories_as_they_are(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 1, 1, 1)
    layout.write(tmp_path, plan, {})
    path = tmp_path / "broker-0" / "d0" / "meta.properties"
    before = path.read_bytes()
    layout.write(tmp_path, plan, {})
    assert path.read_bytes() == before


def test_a_cluster_has_the_id_that_is_wanted(tmp_path: Path) -> None:
    assert layout.plan(tmp_path, 1, 1, 1, cluster_id="a-cluster").cluster_id == "a-cluster"
    assert layout.plan(tmp_path, 1, 1, 1).cluster_id != layout.plan(tmp_path, 1, 1, 1).cluster_id


@pytest.mark.parametrize(("name", "message"), [("a,b", "a comma separates the entries of log.dirs"), ("", "the path is empty")])
def test_a_directory_that_cannot_be_in_a_list_is_refused_and_nothing_is_made(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        LocalCluster(f"{tmp_path}/{name}" if name else "", 1, 1, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("controllers", "brokers", "log_dirs"), [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_too_few_of_anything_is_refused(tmp_path: Path, controllers: int, brokers: int, log_dirs: int) -> None:
    with pytest.raises(ClusterError, match="too few"):
        layout.plan(tmp_path, controllers, brokers, log_dirs)


def test_a_damaged_plan_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_bytes(b"{")
    with pytest.raises(ClusterError, match=r"cannot read .*cluster.json"):
        layout.plan(tmp_path, None, None, None)


@pytest.mark.parametrize("nodes", ["", '{"node_id": 0, "role": "broker", "peer_port": 1, "grpc_port": 2}'])
def test_a_cluster_that_names_no_controller_is_refused(tmp_path: Path, nodes: str) -> None:
    (tmp_path / "cluster.json").write_text(f'{{"cluster_id": "x", "nodes": [{nodes}]}}')
    with pytest.raises(
        ClusterError, match=r"cluster.json names no controller; restore it from a backup, or give another --data directory"
    ):
        layout.plan(tmp_path, None, None, None)


def test_a_directory_serves_one_cluster_at_a_time(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1, 0, 1)
    with pytest.raises(ClusterError, match="a cluster runs on"):
        LocalCluster(tmp_path)
    cluster.close()
    LocalCluster(tmp_path).close()


def test_endpoints_name_what_scripts_need(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1, 1, 1)
    endpoints = cluster.endpoints()
    assert endpoints["bootstrap_servers"] == cluster.bootstrap_servers
    assert endpoints["kafka_bootstrap_servers"] == cluster.kafka_bootstrap_servers == str(cluster.node(0).kafka)
    controller, broker = endpoints["nodes"]  # type: ignore[misc]
    assert {"id", "role", "rack", "kafka", "grpc", "peer", "metrics", "pid", "metadata_dir", "log_dirs", "log"} == set(controller)
    assert controller["kafka"] == str(cluster.node(3000).kafka)
    assert broker["kafka"] == cluster.kafka_bootstrap_servers
    cluster.close()


def test_a_node_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1, 0, 1)
    try:
        (tmp_path / "controller-3000" / "server.properties").write_text("process.roles=controller\nnonsense=1\n")
        cluster.start()
        with pytest.raises(ClusterError, match=r"controller-3000 ended with code 1: Error: .*sets nonsense, an unknown key"):
            cluster.wait_ready(20)
    finally:
        cluster.close()


def dynamic(tmp_path: Path, controllers: int = 3) -> cluster_plan.ClusterPlan:
    return layout.plan(tmp_path, controllers, 1, 1, voters_in_log=True)


def quorum_info(tmp_path: Path, node_id: int) -> storage.StorageInfo:
    return storage.info(load_controller(tmp_path / f"controller-{node_id}" / "server.properties"))


def test_controllers_of_a_new_cluster_are_formatted_together(tmp_path: Path) -> None:
    plan = layout.write(tmp_path, dynamic(tmp_path), {})
    infos = [quorum_info(tmp_path, node.node_id) for node in plan.controllers]
    assert not any(info.problems for info in infos)
    voters = infos[0].quorum.voters if infos[0].quorum else None
    assert voters is not None
    assert all(info.quorum and info.quorum.voters == voters for info in infos)
    assert voters.ids() == (3000, 3001, 3002)
    assert [voter.key.directory_id for voter in voters.voters] == [info.metadata.directory_id for info in infos if info.metadata]
    broker = load_broker(tmp_path / "broker-0" / "server.properties")
    assert broker.bootstrap_servers == tuple(node.peer for node in plan.controllers)


def test_formatting_that_was_interrupted_goes_on_with_the_same_voters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = dynamic(tmp_path)
    real, calls = storage.format, iter(range(9))

    def interrupted(*arguments: Any, **options: Any) -> list[str]:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(storage, "format", interrupted)
    with pytest.raises(KeyboardInterrupt):
        layout.write(tmp_path, plan, {})
    held = layout.plan(tmp_path, None, None, None)
    assert held.unformatted == plan.unformatted
    assert not layout.write(tmp_path, held, {}).unformatted
    for node_id, directory_id in plan.unformatted.items():
        info = quorum_info(tmp_path, node_id)
        assert info.metadata is not None
        assert to_text(info.metadata.directory_id) == directory_id


def an_empty_mount_point(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}-unmounted"))
    path.mkdir()


def a_missing_mount_point(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}-unmounted"))


def an_empty_identity(path: Path) -> None:
    (path / "meta.properties").write_bytes(b"")


def a_zeroed_identity(path: Path) -> None:
    (path / "meta.properties").write_bytes(bytes(99))


def an_identity_of_another_node(path: Path) -> None:
    meta_properties.write(path, MetaProperties("another", 7, random_uuid()))


DISK_FAULTS = {
    an_empty_mount_point: "is not formatted; is its disk mounted?",
    a_missing_mount_point: "is not a directory; is its disk mounted?",
    an_empty_identity: "is empty; restore the file, or write these lines into it: version=1, cluster.id=",
    a_zeroed_identity: "is not a properties file",
    an_identity_of_another_node: "belongs to another cluster: to node 7 of cluster another",
}


@pytest.mark.parametrize("spoil", DISK_FAULTS)
@pytest.mark.parametrize(
    ("place", "blocks"), [("broker-0/d0", False), ("broker-0/metadata", True), ("controller-3001/metadata", True)]
)
def test_a_directory_that_was_formatted_is_never_formatted_again(
    tmp_path: Path, spoil: Callable[[Path], None], place: str, blocks: bool
) -> None:
    """Not as an observer either: the disk with the votes of the controller may come back."""
    written = layout.write(tmp_path, layout.plan(tmp_path, 3, 1, 2), {})
    spoil(tmp_path / place)
    before = sorted(tmp_path.rglob("*"))
    plan = layout.write(tmp_path, layout.plan(tmp_path, None, None, None), {})
    assert plan == written and sorted(tmp_path.rglob("*")) == before
    found = {node.name: layout.unusable(tmp_path, plan, node) for node in plan.nodes}
    [(directory, reason)] = found.pop(place.split("/")[0]).reasons.items()
    assert directory == tmp_path / place and DISK_FAULTS[spoil] in reason
    assert not any(each.reasons for each in found.values())
    assert layout.unusable(tmp_path, plan, next(node for node in plan.nodes if place.startswith(node.name))).blocks == blocks


def test_a_broker_without_any_log_directory_and_a_cluster_without_any_controller_do_not_start(tmp_path: Path) -> None:
    plan = layout.write(tmp_path, layout.plan(tmp_path, 1, 1, 1), {})
    an_empty_mount_point(tmp_path / "broker-0" / "d0")
    assert layout.unusable(tmp_path, plan, plan.brokers[0]).blocks
    an_empty_mount_point(tmp_path / "controller-3000" / "metadata")
    cluster = LocalCluster(tmp_path)
    with contextlib.closing(cluster), pytest.raises(ClusterError, match=r"controller-3000 does not start: .*is not formatted"):
        cluster.start()


def without_identity(path: Path) -> None:
    (path / "meta.properties").unlink()


@pytest.mark.parametrize("spoil", [None, an_empty_identity, a_zeroed_identity, without_identity])
def test_directories_of_a_cluster_whose_plan_is_gone_are_refused(tmp_path: Path, spoil: Callable[[Path], None] | None) -> None:
    plan = layout.write(tmp_path, layout.plan(tmp_path, 1, 1, 1), {})
    (tmp_path / "cluster.json").unlink()
    for path in tmp_path.glob("*/*/meta.properties"):
        if spoil is not None:
            spoil(path.parent)

    def contents() -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*") if path.suffix != ".lock"}

    before = contents()
    name = f"cluster {plan.cluster_id}" if spoil is None else "a cluster"
    message = f"holds nodes of {name} but cluster.json is missing; restore it from a backup, or give another --data directory"
    with pytest.raises(ClusterError, match=message):
        layout.plan(tmp_path, 1, 1, 1)
    with pytest.raises(ClusterError, match=message):
        LocalCluster(tmp_path)
    assert contents() == before


def test_the_nodes_of_a_plan_of_before_count_as_formatted(tmp_path: Path) -> None:
    layout.write(tmp_path, layout.plan(tmp_path, 1, 1, 1), {})
    path = tmp_path / "cluster.json"
    held = msgspec.json.decode(path.read_bytes())
    del held["formatted"]
    path.write_bytes(msgspec.json.encode(held))
    an_empty_mount_point(tmp_path / "broker-0" / "d0")
    plan = layout.write(tmp_path, layout.plan(tmp_path, None, None, None), {})
    assert plan.formatted == (3000, 0) and not list((tmp_path / "broker-0" / "d0").iterdir())


def test_a_controller_more_joins_what_there_is(tmp_path: Path) -> None:
    first = layout.write(tmp_path, dynamic(tmp_path, 1), {})
    plan = layout.write(tmp_path, first.with_controller(), {})
    assert [node.node_id for node in plan.nodes] == [3000, 3001, 0]
    assert layout.plan(tmp_path, None, None, None) == plan
    info = quorum_info(tmp_path, 3001)
    assert info.quorum is not None
    assert info.quorum.voters is None
    broker = load_broker(tmp_path / "broker-0" / "server.properties")
    assert broker.bootstrap_servers == tuple(node.peer for node in plan.controllers)


def test_a_directory_of_static_voters_keeps_them(tmp_path: Path) -> None:
    layout.write(tmp_path, layout.plan(tmp_path, 3, 1, 1, voters_in_log=False), {})
    path = tmp_path / "cluster.json"
    held = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({key: held[key] for key in ("cluster_id", "nodes")}))
    plan = layout.write(tmp_path, layout.plan(tmp_path, None, None, None, voters_in_log=True), {})
    assert not plan.voters_in_log
    assert load_broker(tmp_path / "broker-0" / "server.properties").voters.ids() == (3000, 3001, 3002)


def test_a_node_behind_a_proxy_is_known_by_the_ports_that_it_had(tmp_path: Path) -> None:
    first = layout.write(tmp_path, layout.plan(tmp_path, 3, 1, 1), {})
    proxied = layout.write(tmp_path, first.behind_proxies(), {})
    ports = [port for node in proxied.nodes for port in (node.peer_port, node.grpc_port, node.listens.port)]
    assert len(set(ports)) == 3 * len(proxied.nodes)
    assert [node.peer for node in proxied.nodes] == [node.peer for node in first.nodes]
    for node in proxied.nodes:
        config = load_any(layout.properties_path(tmp_path, node))
        name = "CONTROLLER" if node.role == "controller" else "PEER"
        kafka = {} if node.kafka is None else {"KAFKA": node.kafka}
        assert config.listeners == {name: node.listens, "GRPC": node.grpc, "METRICS": node.metrics} | {
            listener: Endpoint("localhost", endpoint.port) for listener, endpoint in kafka.items()
        }
        assert config.advertised_listeners == {name: node.peer, "GRPC": node.grpc} | kafka
        assert config.controllers == tuple(other.peer for other in first.controllers)
    assert layout.plan(tmp_path, None, None, None) == proxied
    assert proxied.behind_proxies() == proxied
    assert all(node.listen_port is not None for node in proxied.with_controller().nodes)
    again = layout.write(tmp_path, proxied.without_proxies(), {})
    assert again == first
    assert load_any(layout.properties_path(tmp_path, first.nodes[0])).listeners["CONTROLLER"] == first.nodes[0].peer


def test_static_voters_may_be_behind_proxies(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 3, 0, 1, voters_in_log=False).behind_proxies()
    layout.write(tmp_path, plan, {})
    voters = load_controller(tmp_path / "controller-3001" / "server.properties").voters
    assert [voter.endpoints["CONTROLLER"] for voter in voters.voters] == [node.peer for node in plan.nodes]


def test_links_without_proxies_are_not_cut_and_no_node_has_one_to_itself(tmp_path: Path) -> None:
    with contextlib.closing(LocalCluster(tmp_path, 1, 1, 1)) as cluster:
        assert not cluster.links_are_proxied
        with pytest.raises(ClusterError, match="start it with allow_chaos"):
            cluster.cut(3000, 0)
        cluster.heal_all()
    with contextlib.closing(LocalCluster(tmp_path, allow_chaos=True)) as cluster:
        assert cluster.links_are_proxied
        with pytest.raises(ClusterError, match="broker-0 has no link to itself"):
            cluster.cut(0, 0)
        with pytest.raises(ClusterError, match="there is no node 9; nodes are 3000,0"):
            cluster.cut(0, 9)
        cluster.cut(3000, 0)
        assert [(link.source, link.target, link.cut) for link in cluster.links_status()] == [(3000, 0, "hold")]
        cluster.heal_all()
        assert cluster.links_status() == []


class MadeUpNetwork:
    """A network that is only calls what to do."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def host(self, node_id: int) -> str:
        if node_id > 3000:
            raise ClusterError(f"node {node_id} has no place in this network")
        return f"198.18.0.{1 if node_id == 3000 else node_id + 2}"

    def namespace(self, node_id: int) -> str:
        return f"/proc/1/fd/{node_id}"

    def cut(self, pairs: list[tuple[int, int]], cut: Cut) -> None:
        self.calls.append((cut.value, pairs))

    def heal(self, pairs: list[tuple[int, int]], *, drop: bool = False) -> None:
        self.calls.append(("heal", pairs, drop))

    def shape(self, pairs: list[tuple[int, int]], shape: LinkShape) -> None:
        self.calls.append((shape, pairs))

    def heal_all(self, *, drop: bool = False) -> None:
        self.calls.append(("heal all", drop))


def test_nodes_in_a_network_have_its_addresses_and_it_does_to_links_what_is_wanted(tmp_path: Path) -> None:
    network = MadeUpNetwork()
    with contextlib.closing(LocalCluster(tmp_path, 1, 2, 1, allow_chaos=True, network=network)) as cluster:
        assert not cluster.links_are_proxied
        assert [node.host for node in cluster.plan.nodes] == ["198.18.0.1", "198.18.0.2", "198.18.0.3"]
        broker = load_broker(tmp_path / "broker-1" / "server.properties")
        assert {endpoint.host for endpoint in broker.listeners.values()} == {"198.18.0.3"}
        assert cluster.node(1).listens == cluster.node(1).peer
        cluster.cut(3000, 0)
        cluster.cut(0, 1, reset=True)
        cluster.shape(0, 1, LinkShape(loss=0.5))
        cluster.heal(3000, 0, drop=True)
        cluster.heal_all()
        with pytest.raises(ClusterError, match="broker-0 has no link to itself"):
            cluster.cut(0, 0)
        with pytest.raises(ClusterError, match="node 3001 has no place in this network"):
            cluster.add_controller()
    assert network.calls == [
        ("hold", [(3000, 0)]),
        ("reset", [(0, 1)]),
        (LinkShape(loss=0.5), [(0, 1)]),
        ("heal", [(3000, 0)], True),
        ("heal all", False),
    ]
    with contextlib.closing(LocalCluster(tmp_path)) as cluster:
        assert {node.host for node in cluster.plan.nodes} == {cluster_plan.HOST}


def test_the_ports_of_a_cluster_that_runs_are_not_free_though_nothing_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = LocalCluster(tmp_path / "first", 1, 1, 1)
    own = [port for node in first.plan.nodes for port in node.ports]
    monkeypatch.setenv("KRAFTLAB_PORTS", f"{min(own)}-{min(own) + 2 * len(own)}")
    second = LocalCluster(tmp_path / "second", 1, 1, 1)
    assert {port for node in second.plan.nodes for port in node.ports}.isdisjoint(own)
    second.close()
    monkeypatch.setenv("KRAFTLAB_PORTS", f"{min(own)}-{max(own)}")
    with pytest.raises(ClusterError, match=f"no 8 free ports in a row from {min(own)} to {max(own)}; stop other"):
        LocalCluster(tmp_path / "third", 1, 1, 1)
    first.close()
    LocalCluster(tmp_path / "third", 1, 1, 1).close()


@pytest.mark.parametrize("text", ["", "21000", "21000-", "a-b", "21000-31999-"])
def test_a_variable_without_two_ports_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KRAFTLAB_PORTS", text)
    with pytest.raises(
        ClusterError, match=f"KRAFTLAB_PORTS is '{text}', expected the first and the last port, such as 21000-31999"
    ):
        cluster_plan.free_ports(1)


def test_a_cluster_whose_port_is_claimed_names_the_other_cluster(tmp_path: Path) -> None:
    with contextlib.closing(LocalCluster(tmp_path / "first", 1, 0, 1)) as first:
        (tmp_path / "second").mkdir()
        shutil.copy(tmp_path / "first" / "cluster.json", tmp_path / "second")
        port = first.plan.nodes[0].peer_port
        with pytest.raises(
            ClusterError, match=f"port {port} of controller-3000 belongs to the cluster that runs on .*/first; stop"
        ):
            LocalCluster(tmp_path / "second")
    LocalCluster(tmp_path / "second").close()


def test_a_look_for_free_ports_keeps_no_cluster_from_claiming_them(tmp_path: Path) -> None:
    [port] = cluster_plan.free_ports(1)
    claims, lost = PortClaims(tmp_path), []
    with open(claims_directory() / str(port), "ab") as looking, contextlib.closing(claims):
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_claimed(port)
        claiming = threading.Thread(target=lambda: lost.append(claims.take([port])))
        claiming.start()
        looking.close()
        claiming.join()
        assert lost == [None]
        assert is_claimed(port) and PortClaims(tmp_path).take([port]) == port
    assert not is_claimed(port)


def test_a_look_for_a_running_cluster_keeps_none_from_starting(tmp_path: Path) -> None:
    lock(tmp_path).close()
    held = []
    with open(tmp_path / "cluster.lock", "rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_in_use(tmp_path)
        starting = threading.Thread(target=lambda: held.append(lock(tmp_path)))
        starting.start()
        starting.join(0.1)
    starting.join()
    with held[0]:
        assert is_in_use(tmp_path)
        with pytest.raises(ClusterError, match=r"a cluster runs on .* already; stop it first"):
            lock(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_process_that_is_killed_leaves_no_port_behind(tmp_path: Path) -> None:
    [port] = cluster_plan.free_ports(1)
    code = (
        "import pathlib, sys\n"
        "from kraftlab.lab.ports import PortClaims\n"
        "claims = PortClaims(pathlib.Path('gone'))\n"
        "print(claims.take([int(sys.argv[1])]), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "None\n"
        assert is_claimed(port) and owner_of(port) == "gone"
        process.kill()
    assert not is_claimed(port)


def test_an_order_to_a_cluster_without_chaos_fails_otherwise_than_without_a_cluster(tmp_path: Path) -> None:
    with contextlib.closing(LocalCluster(tmp_path, 1, 0, 1)), pytest.raises(ClusterError, match="takes no orders; stop it, and"):
        give(tmp_path, Order("status"))
    with pytest.raises(ClusterError, match=r"is stopped \(controllers: 1, brokers: 0\); start it with: kraftlab up"):
        give(tmp_path, Order("status"))
    with pytest.raises(ClusterError, match="holds no cluster; start one with: kraftlab up"):
        give(tmp_path / "other", Order("status"))


def test_many_commands_may_come_at_once(tmp_path: Path) -> None:
    count = 40
    together = threading.Barrier(count)

    def heal(_: int) -> str:
        together.wait()
        return give(tmp_path, Order("heal")).text

    with contextlib.closing(LocalCluster(tmp_path, 1, 0, 1, allow_chaos=True)) as cluster:
        server = ControlServer(tmp_path, Breaker(cluster, print))
        with contextlib.closing(server), ThreadPoolExecutor(count) as pool:
            assert set(pool.map(heal, range(count))) == {"healed everything: nothing was broken"}


def test_orders_reach_the_links_of_a_network_and_say_what_becomes_of_packets(tmp_path: Path) -> None:
    network = MadeUpNetwork()
    with contextlib.closing(LocalCluster(tmp_path, 1, 1, 1, network=network)) as cluster:
        order = Order("cut", (("controller-3000",), ("broker-0",)), one_way=True)
        done = Breaker(cluster, lambda line: None).carry_out(order)
    assert done.text == "cut controller-3000 → broker-0: packets wait"
    assert ("hold", [(3000, 0)]) in network.calls


@pytest.mark.parametrize(
    ("properties", "login"),
    [
        ({"listener.name.grpc.users": "al:a,admin:secret", "super.users": "User:admin;User:ops"}, ("admin", "secret")),
        ({"listener.name.grpc.users": "al:a", "super.users": "User:admin"}, None),
        ({"super.users": "User:admin"}, None),
        ({"listener.name.grpc.users": "damaged", "super.users": "User:damaged"}, None),
    ],
)
def test_the_lab_asks_as_a_super_user_who_has_a_password(
    tmp_path: Path, properties: dict[str, str], login: tuple[str, str] | None
) -> None:
    [node] = layout.plan(tmp_path, 1, 0, 1).nodes
    path = layout.properties_path(tmp_path, node)
    path.parent.mkdir(parents=True)
    lines = [f"{key}={value}\n" for key, value in properties.items()]
    path.write_text("".join([*lines, "authorizer.class.name=StandardAuthorizer\n"]))
    assert layout.super_user(tmp_path, node) == login
    path.write_text("".join(lines))
    assert layout.super_user(tmp_path, node) is None, "everybody may do everything"
