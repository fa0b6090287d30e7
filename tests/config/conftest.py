from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WriteProperties = Callable[..., Path]


@pytest.fixture
def controller_file(tmp_path: Path) -> WriteProperties:
    """Write a controller's server.properties; keyword `changes` replaces or (None) removes keys."""
    defaults = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": "3000@127.0.0.1:19093,3001@127.0.0.1:19094,3002@127.0.0.1:19095",
        "listeners": "CONTROLLER://127.0.0.1:19093,GRPC://127.0.0.1:19100",
        "metadata.log.dir": str(tmp_path / "metadata"),
    }
    return _writer(tmp_path / "controller.properties", defaults)


@pytest.fixture
def dynamic_file(controller_file: WriteProperties) -> WriteProperties:
    """A controller with its voters in the log."""
    defaults = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "127.0.0.1:19093,127.0.0.1:19094"}
    return lambda changes=None: controller_file({**defaults, **(changes or {})})


@pytest.fixture
def broker_file(tmp_path: Path) -> WriteProperties:
    """As `controller_file`, for a broker with two log directories."""
    defaults = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "3000@127.0.0.1:19093",
        "listeners": "PEER://127.0.0.1:19193,GRPC://127.0.0.1:19200",
        "metadata.log.dir": str(tmp_path / "metadata"),
        "log.dirs": f"{tmp_path / 'd0'},{tmp_path / 'd1'}",
        "broker.rack": "rack-1",
    }
    return _writer(tmp_path / "broker.properties", defaults)


def _writer(path: Path, defaults: dict[str, str]) -> WriteProperties:
    def write(changes: dict[str, str | None] | None = None) -> Path:
        values = {**defaults, **(changes or {})}
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value is not None))
        return path

    return write
