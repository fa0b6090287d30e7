"""A controller and a broker as services of systemd."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any


def test_nodes_tell_the_service_manager_that_they_are_ready_alive_and_stopping(node_files: Any, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        address = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        node_files.start("controller", **address)
        assert manager.recv(100) == b"READY=1"
        process = node_files.start("broker", WATCHDOG_USEC="200000", **address)
        assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == manager.recv(100) == b"WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        while (state := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"
        said, _ = process.communicate(timeout=15)
        assert said.strip().splitlines()[-1].endswith("broker 0 stopped")
