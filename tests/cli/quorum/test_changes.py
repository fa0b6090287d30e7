"""add-controller and remove-controller without a cluster: Kafka's texts, and values from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlab.cli import main

SERVERS = ["metadata-quorum", "--bootstrap-server", "127.0.0.1:1"]
DIRECTORY = "GDAXWlNIRRKoB5wdxbZcYg"


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A formatted controller's server.properties."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3003\ncontroller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        "listeners=CONTROLLER://[::1]:19096,GRPC://127.0.0.1:19097\n"
        f"metadata.log.dir={tmp_path}/metadata\n"
    )
    assert main.run(["storage", "format", "-t", "lab", "-c", str(path), "-N"]) == 0
    return str(path)


def directory_id(config: str) -> str:
    text = (Path(config).parent / "metadata" / "meta.properties").read_text()
    return next(line.partition("=")[2] for line in text.splitlines() if line.startswith("directory.id="))


def test_a_dry_run_reads_id_directory_and_endpoint_from_the_local_files(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    expected = (
        f"DRY RUN of adding controller 3003 with directory id {directory_id(config)} and endpoints: CONTROLLER://[::1]:19096\n"
    )
    assert main.run([*SERVERS, "add-controller", "--config", config, "--dry-run"]) == 0
    assert capsys.readouterr().out == expected
    assert main.run([*SERVERS, "--command-config", config, "add-controller", "--dry-run"]) == 0
    assert capsys.readouterr().out == expected
    assert main.run([*SERVERS, "add-controller", "--config", config, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "controller_id": 3003,
        "directory_id": directory_id(config),
        "endpoints": ["CONTROLLER://[::1]:19096"],
        "dry_run": True,
    }


def test_a_dry_run_of_a_removal_prints_kafkas_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*SERVERS, "remove-controller", "-i", "3000", "-d", DIRECTORY, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"DRY RUN of removing  KRaft controller 3000 with directory id {DIRECTORY}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [*SERVERS, "add-controller"],
            "You must supply the configuration file of the controller you are adding when using add-controller.",
        ),
        ([*SERVERS, "add-controller", "--config", "/no/such/file"], "there is no file /no/such/file"),
        ([*SERVERS, "remove-controller", "-i", "-1", "-d", DIRECTORY], "Invalid negative --controller-id: -1"),
        ([*SERVERS, "remove-controller", "-i", "1", "-d", "x"], "Failed to parse --controller-directory-id: 'x' is not an id"),
        ([*SERVERS, "remove-controller", "-i", "1"], "Missing option '--controller-directory-id' / '-d'"),
        ([*SERVERS, "transfer-leadership"], "Missing option '--to'"),
        (["metadata-quorum", "remove-controller", "-i", "1", "-d", DIRECTORY], "no cluster is up on this machine; start one"),
        (["metadata-quorum", "describe", "--status"], "no cluster is up on this machine; start one"),
    ],
)
def test_wrong_and_missing_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == (1 if said.startswith(("no cluster is up", "there is no file")) else 64)
    assert said in capsys.readouterr().err


def test_a_controller_that_is_not_formatted_cannot_be_added(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metadata" / "meta.properties").unlink()
    assert main.run([*SERVERS, "add-controller", "--config", config]) == 1
    assert "is not formatted; run: kraftlab storage format" in capsys.readouterr().err
