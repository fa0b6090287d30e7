"""A console as a child of `kraftlab up`: its port, and that nobody else imports what it needs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlab.certificates.folder import throw_away
from kraftlab.cli import main
from kraftlab.cli.output import CommandFailed
from kraftlab.cli.web.child import free_port
from kraftlab.cli.web.command import listening_at
from kraftlab.common.endpoint import Endpoint
from kraftlab.console import server
from kraftlab.console.app import Assets

IMPORTED = """import sys
import kraftlab.cli.lab.up, kraftlab.cli.web.child, kraftlab.lab.fork_server, kraftlab.broker.main, kraftlab.controller.main
print(sorted({each.partition(".")[0] for each in sys.modules} & {"hypercorn", "starlette", "anyio"}))"""


def test_a_port_that_is_free_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert free_port(port, chosen=True) == port


def test_any_port_will_do_if_the_default_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert free_port(other.getsockname()[1], chosen=False) == 0


def test_a_chosen_port_that_is_in_use_is_refused_with_the_option_of_that_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(CommandFailed, match=r"in use; .* --console-port PORT"):
        free_port(other.getsockname()[1], chosen=True)


def test_a_console_takes_another_port_if_that_of_the_default_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        at = Endpoint("127.0.0.1", other.getsockname()[1])
        with listening_at(server, at, chosen=False) as listening:
            assert listening.getsockname()[1] not in (0, at.port)
        with pytest.raises(CommandFailed, match="Choose another address: --listen"):
            listening_at(server, at, chosen=True)


def test_up_refuses_the_port_before_it_starts_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main.run(["up", "--data", str(tmp_path / "lab"), "--console", "--console-port", port]) != 0
    assert "--console-port PORT" in capsys.readouterr().err


def test_neither_up_nor_a_node_imports_the_server_of_the_console() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_certificate_that_cannot_serve_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = throw_away(tmp_path, ["broker-0", "broker-1"])
    names = "--certificate", str(paths["broker-0"]), "--key", str(paths["broker-1"])
    assert main.run(["console", "--bootstrap-server", "127.0.0.1:1", *names]) != 0
    assert "give a PEM certificate and its own key" in capsys.readouterr().err


def test_all_scripts_and_styles_are_at_most_120_kilobytes_as_they_are_sent() -> None:
    assert sum(map(len, Assets().compressed.values())) <= 120_000
