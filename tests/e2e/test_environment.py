"""A controller and a broker that are started as containers are: with variables only, on empty directories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kraftlab.client import AdminClient
from tests.helpers.waiting import wait_until


def test_nodes_start_from_their_environment_on_empty_directories(node_files: Any, tmp_path: Path) -> None:
    controller, broker = node_files.node("controller"), node_files.node("broker")
    common = {
        "CLUSTER_ID": "kraftlab-of-containers",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"3000@127.0.0.1:{controller.peer_port}",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
    }
    of_roles = {
        "controller": {
            "KAFKA_NODE_ID": "3000",
            "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{controller.peer_port},GRPC://127.0.0.1:{controller.grpc_port}",
        },
        "broker": {
            "KAFKA_NODE_ID": "0",
            "KAFKA_ADVERTISED_LISTENERS": f"PEER://127.0.0.1:{broker.peer_port},GRPC://127.0.0.1:{broker.grpc_port}",
            "KAFKA_LOG_DIRS": str(tmp_path / "d0"),
        },
    }
    logs = {role: tmp_path / f"{role}.log" for role in of_roles}
    for role, own in of_roles.items():
        variables = {"KAFKA_PROCESS_ROLES": role, "KAFKA_METADATA_LOG_DIR": str(tmp_path / role), **common, **own}
        with logs[role].open("wb") as log:
            command = [sys.executable, "-m", "kraftlab.cli.main", "node", "--environment"]
            node_files.started.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables}))
    for role, log in logs.items():
        wait_until(lambda log=log: " ready: " in log.read_text(), f"the {role} is ready")
        assert "WARNING kraftlab.config: these variables have no effect: KAFKA_HEAP_OPTS\n" in log.read_text()
    with AdminClient(f"127.0.0.1:{broker.grpc_port}", cluster_id="kraftlab-of-containers") as admin:
        assert [found.broker_id for found in admin.describe_cluster().brokers] == [0]
    for process in reversed(node_files.started):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0
