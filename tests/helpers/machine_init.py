"""First process of a machine of tests (machines.py): it mounts the machine's own directories, then stands in for systemd.

Directories that a person changes are overlays on a tmpfs: the machine begins with those of this one, and what it writes is gone
when it ends. Services are read from unit files. One of `Type=notify` has started when it has said so. The requests of
`systemctl` come by a socket. The process ends when its standard input does, and the kernel ends all others of the machine.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

REQUESTS = "/run/systemctl"
CHANGED = ("/etc", "/opt", "/var/lib")
UNITS = Path("/etc/systemd/system")


class Service:
    """One instance of a unit."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        template, _, instance = unit.removesuffix(".service").partition("@")
        path = UNITS / (f"{template}@.service" if instance else f"{template}.service")
        read = configparser.RawConfigParser()
        read.optionxform = str  # type: ignore[assignment,method-assign]
        read.read_string(path.read_text().replace("%i", instance))
        self._settings = read["Service"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it is ready. RuntimeError if it ends before."""
        if self._process is not None and self._process.poll() is None:
            return
        name = f"/run/notify-{self.unit}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        messages.bind(name)
        os.chmod(name, 0o777)
        watchdog_us = int(self._settings["WatchdogSec"]) * 1_000_000
        with open(f"/run/{self.unit}.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": str(watchdog_us)},
            )
        ready = threading.Event()
        threading.Thread(target=self._listen, args=(messages, ready), daemon=True).start()
        while not ready.wait(0.05):
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.unit} ended with {self._process.returncode}")

    def stop(self) -> None:
        """Stop the process as systemd does. RuntimeError if it does not end in time, or with an error."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(float(self._settings["TimeoutStopSec"]))
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"{self.unit} did not stop") from None
        if code != 0:
            raise RuntimeError(f"{self.unit} stopped with {code}")

    def _command(self) -> list[str]:
        """The command as the unit's user, who may not reach a clone below the home of another. So it may read everything."""
        user = self._settings["User"]
        files = min(int(self._settings["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
        identity = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", *rights]
        return ["prlimit", f"--nofile={files}", *identity, *self._settings["ExecStart"].split()]

    def _listen(self, messages: socket.socket, ready: threading.Event) -> None:
        with messages:
            while True:
                if messages.recv(100) == b"READY=1":
                    ready.set()


def mount(source: str, target: str, kind: str, *options: str) -> None:
    subprocess.run(["mount", "-t", kind, *options, source, target], check=True)


def make_own_directories(scratch: str) -> None:
    mount("machine", scratch, "tmpfs")
    for directory in CHANGED:
        upper, work = (Path(scratch, kind, directory[1:]) for kind in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        mount("machine", directory, "overlay", "-o", f"lowerdir={directory},upperdir={upper},workdir={work}")
    mount("machine", "/run", "tmpfs")


def answer(arguments: list[str], services: dict[str, Service]) -> str:
    """Carry out one `systemctl` and return its error."""
    verb, *rest = arguments
    units = [argument for argument in rest if not argument.startswith("-")]
    if verb == "enable" and "--now" in rest:
        verb = "start"
    try:
        for unit in units:
            if unit not in services:
                services[unit] = Service(unit)
            if verb in ("stop", "restart"):
                services[unit].stop()
            if verb in ("start", "restart"):
                services[unit].start()
    except (RuntimeError, OSError) as error:
        log = Path(f"/run/{unit}.log")
        return f"{error}\n{log.read_text()[-2000:] if log.exists() else ''}"
    return "" if verb in ("start", "stop", "restart", "daemon-reload") else f"unknown: {arguments}"


def serve() -> None:
    services: dict[str, Service] = {}
    with socket.create_server(REQUESTS, family=socket.AF_UNIX) as listening:
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                error = answer(json.loads(connection.recv(10_000)), services)
                with contextlib.suppress(OSError):
                    connection.sendall(error.encode())


if __name__ == "__main__":
    make_own_directories(sys.argv[1])
    threading.Thread(target=serve, daemon=True).start()
    sys.stdin.buffer.read()
