"""Messages to systemd, received by real datagram sockets."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kraftlab.node.service_manager import notify, serve_ready


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@kraftlab-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0"))
        receiver.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield receiver


def received(manager: socket.socket) -> list[bytes]:
    messages: list[bytes] = []
    while True:
        try:
            messages.append(manager.recv(100))
        except BlockingIOError:
            return messages


def test_a_state_is_one_datagram(manager: socket.socket) -> None:
    notify("STOPPING=1")
    assert received(manager) == [b"STOPPING=1"]


OTHERS = [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}]


@pytest.mark.parametrize("variables", OTHERS)
async def test_without_a_watchdog_for_this_process_the_node_says_once_that_it_is_ready(
    manager: socket.socket, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    await serve_ready()
    assert received(manager) == [b"READY=1"]


async def test_the_watchdog_hears_of_the_loop_twice_in_its_time(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with trio.move_on_after(59):
        await serve_ready()
    assert received(manager) == [b"READY=1"] + 4 * [b"WATCHDOG=1"]


def test_nothing_is_sent_without_the_variable(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    assert caplog.records == []


@pytest.mark.parametrize("name", ["absent", "vsock:2:1", "@" + 200 * "x"])
def test_a_socket_that_cannot_be_reached_is_one_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    for _ in range(3):
        notify("READY=1")
    [line] = caplog.records
    assert line.levelno == logging.WARNING and f"NOTIFY_SOCKET={name}: " in line.getMessage()
