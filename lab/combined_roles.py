"""The parent of a controller and a broker in one container (config/combined_roles.py): `kraftlab node --environment`.

Theory of operation. Each node is a process with variables of its own, and says by $NOTIFY_SOCKET that it is ready. The broker
starts when the controller is ready. Then two lines are printed that tests of containers wait for. SIGTERM and Ctrl-C stop the
broker first. A node that ends by itself ends the other one too. Nodes stop when the parent is gone, in whatever way.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.config import combined_roles
from kraftlab.config.errors import ConfigError
from kraftlab.node.service_manager import READY

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def run(variables: Mapping[str, str]) -> int:
    """Run both nodes until they are stopped: DONE, or FAILED if one ended by itself or with an error."""
    try:
        nodes = combined_roles.split(variables)
    except ConfigError as error:
        print(f"Error: {error}", file=sys.stderr)
        return FAILED
    with tempfile.TemporaryDirectory(prefix="kraftlab-") as directory:
        parent = _Parent(os.path.join(directory, "notify"))
        try:
            for own in nodes.values():
                parent.start(own)
                if not parent.waits_for_ready():
                    break
            else:
                broker_id = nodes["broker"]["KAFKA_NODE_ID"]
                print(f"[BrokerServer id={broker_id}] Transitioning from RECOVERY to RUNNING", flush=True)
                print(f"[KafkaRaftServer nodeId={broker_id}] Kafka Server started", flush=True)
                parent.waits_for_end()
        finally:
            code = parent.stop()
    return code


class _Parent:
    """Processes of nodes, and the messages and signals about them."""

    def __init__(self, notify_socket: str) -> None:
        self._notify_socket = notify_socket
        self._messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._messages.bind(notify_socket)
        self._wakes, wake = socket.socketpair()
        for each in (self._messages, self._wakes, wake):
            each.setblocking(False)
        self._stopped = False
        self._nodes: list[subprocess.Popen[bytes]] = []
        for number in _SIGNALS:
            signal.signal(number, self._handle)
        signal.set_wakeup_fd(wake.detach(), warn_on_full_buffer=False)

    def _handle(self, number: int, frame: object) -> None:
        self._stopped |= number != signal.SIGCHLD

    def start(self, variables: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "kraftlab.lab.node", "--environment", "--until-stdin-closes"]
        environment = {**variables, "NOTIFY_SOCKET": self._notify_socket}
        self._nodes.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True))

    def waits_for_ready(self) -> bool:
        """Return True when the youngest node is ready, False when nodes are to stop."""
        while not self._is_over():
            if self._messages in self._wait() and self._messages.recv(100) == READY.encode():
                return True
        return False

    def waits_for_end(self) -> None:
        while not self._is_over():
            if self._messages in self._wait():
                self._messages.recv(100)

    def _is_over(self) -> bool:
        return self._stopped or any(node.poll() is not None for node in self._nodes)

    def _wait(self) -> list[socket.socket]:
        ready: list[socket.socket] = select.select([self._messages, self._wakes], [], [])[0]
        if self._wakes in ready:
            self._wakes.recv(100)
        return ready

    def stop(self) -> int:
        """Stop all nodes, the youngest first."""
        failed = not self._stopped
        for node in reversed(self._nodes):
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
            failed |= node.wait() != DONE
        return FAILED if failed else DONE
