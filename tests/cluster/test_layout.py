from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.cluster import ClusterError, LocalCluster, layout
from kraftlab.config.models import load_broker, load_controller


def test_a_new_directory_gets_nodes_racks_and_ports(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 3, 4, 2)
    assert [node.node_id for node in plan.nodes] == [3000, 3001, 3002, 0, 1, 2, 3]
    assert [node.rack for node in plan.brokers] == ["rack-0", "rack-1", "rack-0", "rack-1"]
    ports = [port for node in plan.nodes for port in (node.peer_port, node.grpc_port)]
    assert len(set(ports)) == 14
    assert max(ports) < 32768


def test_the_same_directory_gives_the_same_cluster(tmp_path: Path) -> None:
    first = layout.plan(tmp_path, 1, 2, 1)
    layout.write(tmp_path, first, {})
    assert layout.plan(tmp_path, None, None, None) == first
    assert layout.plan(tmp_path, 1, 2, 1) == first
    with pytest.raises(ClusterError, match="holds a cluster with 2 brokers, not 3; start it with 2"):
        layout.plan(tmp_path, 1, 3, 1)


def test_what_is_written_is_what_nodes_read(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 3, 1, 2)
    layout.write(tmp_path, plan, {"log.segment.bytes": "1048576"})
    controller = load_controller(tmp_path / "controller-3001" / "server.properties")
    assert controller.voters.ids() == (3000, 3001, 3002)
    broker = load_broker(tmp_path / "broker-0" / "server.properties")
    assert broker.log_dirs == (tmp_path / "broker-0" / "d0", tmp_path / "broker-0" / "d1")
    assert broker.metadata_log_dir == tmp_path / "broker-0" / "metadata"
    assert (broker.rack, broker.log_segment_bytes) == ("rack-0", 1048576)
    assert all((path / "meta.properties").exists() for path in broker.all_directories())


def test_writing_again_keeps_the_directories_as_they_are(tmp_path: Path) -> None:
    plan = layout.plan(tmp_path, 1, 1, 1)
    layout.write(tmp_path, plan, {})
    path = tmp_path / "broker-0" / "d0" / "meta.properties"
    before = path.read_bytes()
    layout.write(tmp_path, plan, {})
    assert path.read_bytes() == before


@pytest.mark.parametrize(("controllers", "brokers", "log_dirs"), [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_too_few_of_anything_is_refused(tmp_path: Path, controllers: int, brokers: int, log_dirs: int) -> None:
    with pytest.raises(ClusterError, match="too few"):
        layout.plan(tmp_path, controllers, brokers, log_dirs)


def test_a_damaged_plan_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(ClusterError, match=r"cannot read .*cluster.json"):
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
    assert {"id", "role", "rack", "grpc", "peer", "pid", "metadata_dir", "log_dirs", "log"} == set(endpoints["nodes"][0])  # type: ignore[index]
    cluster.close()


def test_a_node_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1, 0, 1)
    try:
        (tmp_path / "controller-3000" / "server.properties").write_text("nonsense=1\n")
        cluster.start()
        with pytest.raises(ClusterError, match=r"controller-3000 ended with code 1: Error: .*nonsense=1, which no node knows"):
            cluster.wait_ready(20)
    finally:
        cluster.close()
