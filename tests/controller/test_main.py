"""A whole controller process, run inside the test: one voter on real files and sockets."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
import trio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import ControllerConfig, build
from kraftlab.controller import main
from kraftlab.controller.configs.mutation_quota import quota_of
from kraftlab.controller.engine.background import background_tasks
from kraftlab.controller.main import ControllerNode
from kraftlab.node.replica import driver_config
from kraftlab.rpc.methods import SERVICE
from kraftlab.rpc.server import Call

from ..helpers.waiting import eventually

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def configuration(directory: Path, peer: int, grpc: int, **settings: str) -> ControllerConfig:
    """Configuration of a lone voter; a setting's name has underscores in the place of dots."""
    values = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": f"3000@127.0.0.1:{peer}",
        "listeners": f"CONTROLLER://127.0.0.1:{peer},GRPC://127.0.0.1:{grpc}",
        "metadata.log.dir": str(directory),
        "controller.quorum.election.timeout.ms": "20",
        "metadata.max.idle.interval.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return build(values, "server.properties", "controller", ControllerConfig)


@pytest.fixture
def config(tmp_path: Path, new_port: Callable[[], int]) -> ControllerConfig:
    made = configuration(tmp_path / "metadata", new_port(), new_port())
    meta_properties.write(made.metadata_log_dir, MetaProperties("one-cluster", 3000, random_uuid()))
    return made


def node_with(directory: Path, **settings: str) -> ControllerNode:
    """A controller that does not run."""
    return ControllerNode(configuration(directory, 1, 2, **settings), MetaProperties("one-cluster", 3000, random_uuid()))


async def test_the_state_machine_runs_by_the_settings_of_the_file(tmp_path: Path) -> None:
    node = node_with(
        tmp_path,
        broker_session_timeout_ms="1500",
        broker_heartbeat_interval_ms="300",
        metadata_max_idle_interval_ms="700",
        leader_imbalance_check_interval_seconds="7",
        unclean_leader_election_interval_ms="9000",
        controller_quota_window_num="3",
        controller_quota_window_size_seconds="2",
    )
    settings = node.controller.settings
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms, settings.max_idle_interval_ms) == (1500, 300, 700)
    intervals = {task.name: task.interval_ms for task in background_tasks(settings)}
    assert (intervals["balance leaders"], intervals["elect uncleanly"]) == (7_000, 9_000)
    quota = quota_of(settings.static)
    assert quota.bucket((("user", "u"),), 10.0, 0).tokens == 60, "a burst fills three windows of two seconds"


async def test_leaders_are_not_balanced_if_the_file_says_so(tmp_path: Path) -> None:
    node = node_with(tmp_path, auto_leader_rebalance_enable="false")
    assert "balance leaders" not in {task.name for task in background_tasks(node.controller.settings)}


def test_the_quorum_runs_by_the_settings_of_the_file(tmp_path: Path) -> None:
    config = configuration(
        tmp_path,
        *(1, 2),
        controller_quorum_election_timeout_ms="2000",
        controller_quorum_fetch_timeout_ms="5000",
        metadata_log_max_record_bytes_between_snapshots="1000",
        metadata_log_max_snapshot_interval_ms="4000",
        kraftlab_trace_file=str(tmp_path / "trace"),
    )
    driver = driver_config(config, MetaProperties("one-cluster", 3000, random_uuid()))
    assert (driver.raft.election_timeout_ms, driver.raft.fetch_timeout_ms) == (2000, 5000)
    assert (driver.snapshot_max_new_bytes, driver.snapshot_max_interval_ms) == (1000, 4000)
    assert driver.trace_file == str(tmp_path / "trace")


@asynccontextmanager
async def running(config: ControllerConfig) -> AsyncIterator[ControllerNode]:
    """The node, active and registered; stopped by a signal at the end."""
    identity = meta_properties.read(config.metadata_log_dir)
    assert identity is not None
    node = ControllerNode(config, identity)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        with trio.fail_after(20):
            await eventually(lambda: bool(node.controller.committed.image.cluster.controllers))
            yield node
            os.kill(os.getpid(), signal.SIGTERM)


async def ask(node: ControllerNode, api: str, request: Any) -> Any:
    return await node.service.dispatch(Call(api, request, "User:ANONYMOUS"))


def change(value: str) -> pb.IncrementalAlterConfigsRequest:
    request = pb.IncrementalAlterConfigsRequest()
    resource = request.resources.add(resource_type=4, resource_name="")
    resource.configs.add(name="leader.replication.throttled.rate", value=value)
    return request


async def test_a_node_elects_itself_registers_and_keeps_what_it_wrote_over_a_restart(config: ControllerConfig) -> None:
    async with running(config) as node:
        written = await ask(node, "IncrementalAlterConfigs", change("5"))
        assert written.header.error_code == 0
        assert written.header.leader.port == config.grpc.port
        first = await ask(node, "DescribeMetadata", pb.DescribeMetadataRequest(reread_log=True))
        assert first.reread_offset == first.offset == written.header.metadata_offset
        assert first.reread_digest == first.image_digest
    async with running(config) as node:
        await eventually(lambda: node.controller.is_active)
        assert node.controller.committed.image.config(4, "", "leader.replication.throttled.rate") == "5"
        earlier = await ask(node, "DescribeMetadata", pb.DescribeMetadataRequest(at_offset=first.offset))
        assert earlier.image_digest == first.image_digest
        quorum = await ask(node, "DescribeQuorum", pb.DescribeQuorumRequest())
        assert (quorum.leader_id, [replica.replica_id for replica in quorum.current_voters]) == (3000, [3000])
        assert quorum.current_voters[0].endpoints[0].port == config.peer.port


async def test_an_offset_that_is_not_reached_has_no_digest(config: ControllerConfig) -> None:
    async with running(config) as node:
        response = await ask(node, "DescribeMetadata", pb.DescribeMetadataRequest(at_offset=10_000))
        assert response.header.error_code == 1
        assert "10000" in response.header.error_message


async def test_a_port_in_use_ends_the_start_with_one_line(config: ControllerConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", config.peer.port))
        taken.listen()
        with pytest.raises(SystemExit) as caught:
            await main.run(config)
    assert str(config.peer.port) in str(caught.value)
    assert "another process" in str(caught.value)


async def test_directories_of_other_nodes_and_unformatted_ones_are_refused(tmp_path: Path, new_port: Callable[[], int]) -> None:
    config = configuration(tmp_path / "metadata", new_port(), new_port())
    with pytest.raises(ConfigError, match="not formatted"):
        await main.run(config)
    meta_properties.write(config.metadata_log_dir, MetaProperties("one-cluster", 3001, random_uuid()))
    with pytest.raises(ConfigError, match="3001"):
        await main.run(config)


async def test_damage_in_committed_data_ends_the_start_with_one_line(config: ControllerConfig) -> None:
    async with running(config) as node:
        for value in "12345":
            await ask(node, "IncrementalAlterConfigs", change(value))
    (segment,) = (config.metadata_log_dir / "__cluster_metadata-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[4096 + 60] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(SystemExit) as caught:
        await main.run(config)
    assert segment.name in str(caught.value)


async def test_a_controller_without_a_handler_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(main.HANDLERS, "ElectLeaders")
    with pytest.raises(LookupError, match="the controller has no handler of ElectLeaders"):
        node_with(tmp_path)


async def test_health_is_the_same_by_grpc_and_http_and_ends_before_the_node(tmp_path: Path, new_port: Callable[[], int]) -> None:
    peer, at_grpc, at_metrics = new_port(), new_port(), new_port()
    listeners = f"CONTROLLER://127.0.0.1:{peer},GRPC://127.0.0.1:{at_grpc},METRICS://127.0.0.1:{at_metrics}"
    config = configuration(tmp_path / "metadata", peer, at_grpc, listeners=listeners)
    meta_properties.write(config.metadata_log_dir, MetaProperties("one-cluster", 3000, random_uuid()))

    def said() -> tuple[bool, bool]:
        """Return readiness by gRPC and by HTTP."""
        asked = HealthCheckRequest(service=SERVICE)
        status = HealthStub(channel).Check(asked, timeout=10, wait_for_ready=True).status
        with suppress(HTTPError), urlopen(f"http://127.0.0.1:{at_metrics}/readyz", timeout=10) as page:
            return status == SERVING, page.status == 200
        return status == SERVING, False

    with grpc.insecure_channel(f"127.0.0.1:{at_grpc}") as channel:
        watched = HealthStub(channel).Watch(HealthCheckRequest(), timeout=20, wait_for_ready=True)
        async with running(config) as node:
            await eventually(lambda: node.controller.is_active)
            assert (await trio.to_thread.run_sync(next, watched)).status == SERVING
            assert await trio.to_thread.run_sync(said) == (True, True)
            statistics = node.driver.statistics
            with pytest.MonkeyPatch.context() as changes:
                changes.setattr(node.driver, "statistics", lambda: statistics()._replace(disk_busy_s=60.0))
                while await trio.to_thread.run_sync(said) != (False, False):
                    pass
        assert [each.status for each in await trio.to_thread.run_sync(list, watched)] == [NOT_SERVING]


async def test_threads_can_read_the_clock(config: ControllerConfig) -> None:
    async with running(config) as node:
        here = node.service.now_ms()
        assert here <= await trio.to_thread.run_sync(node.service.now_ms) <= node.service.now_ms()
