"""The cluster that a command asks: named by an option, by the environment, or the newest that is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftlab.cli import main
from kraftlab.cli.connection import SERVERS_VARIABLE, endpoint_options, required_servers
from kraftlab.cli.output import WrongUse
from kraftlab.lab import contexts, layout
from kraftlab.lab.locking import lock

pytestmark = pytest.mark.cluster


@click.command()
@endpoint_options
def ask() -> None:
    click.echo(required_servers())


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Lay out a cluster of two nodes under a name, as `kraftlab up` does, without its processes; its servers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:

        def lay_out(name: str) -> str:
            plan = layout.write(tmp_path / name, layout.plan(tmp_path / name, 1, 1, 1), {})
            stack.enter_context(lock(tmp_path / name))
            stack.enter_context(contexts.published(tmp_path / name))
            return ",".join(str(node.grpc) for node in plan.nodes)

        (tmp_path / "old").mkdir()
        (tmp_path / "new").mkdir()
        yield lay_out


def asked(*arguments: str, **environment: str) -> str:
    done = CliRunner().invoke(ask, arguments, env=environment)
    return done.stdout.strip() or str(done.exception)


def test_options_win_over_the_environment_and_that_over_the_newest_cluster(up: Callable[[str], str], tmp_path: Path) -> None:
    old, new = up("old"), up("new")
    assert asked() == new
    assert asked(**{SERVERS_VARIABLE: "host:1"}) == "host:1"
    assert asked("--data", str(tmp_path / "old"), **{SERVERS_VARIABLE: "host:1"}) == old
    assert asked("--bootstrap-server", "host:2", **{SERVERS_VARIABLE: "host:1"}) == "host:2"
    assert asked("--bootstrap-controller", "host:3") == "host:3"


def test_a_variable_that_names_no_server_is_wrong_use() -> None:
    done = CliRunner().invoke(ask, [], env={SERVERS_VARIABLE: "host"})
    assert isinstance(done.exception, WrongUse)
    assert f"{SERVERS_VARIABLE}: 'host' is not host:port" in str(done.exception)


def test_the_cluster_is_named_where_several_are_up(up: Callable[[str], str], tmp_path: Path) -> None:
    up("old")
    assert CliRunner().invoke(ask, []).stderr == ""
    up("new")
    assert CliRunner().invoke(ask, []).stderr == f"2 clusters are up; asking the newest, {tmp_path}/new (--data names another)\n"


CHANGING = """\
topics --create --topic t
topics --alter --topic t --partitions 2
topics --delete --topic t
reassign-partitions --execute --reassignment-json-file FILE
reassign-partitions --verify --reassignment-json-file FILE
reassign-partitions --cancel --all
reassign-partitions --rollback p
reassign-partitions --forget p
configs --alter --entity-type topics --entity-name t --add-config retention.ms=1
acls --add --allow-principal User:a --topic t
features upgrade --feature kraft.version=1
features downgrade --release-version 4.0
metadata-quorum remove-controller --controller-id 1 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ
metadata-quorum transfer-leadership --to 1
leader-election --election-type preferred --all-topic-partitions
delete-records --offset-json-file FILE
console-producer --topic t
log-dirs --online /d --broker 0
log-dirs --promote t-0 --broker 0
snapshot create
cluster unregister --id 1""".splitlines()


@pytest.mark.parametrize("command", CHANGING)
def test_a_change_never_chooses_between_clusters(
    command: str, up: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would change the wrong one without a word."""
    up("old")
    up("new")
    file = tmp_path / "file.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    assert main.run(command.replace("FILE", str(file)).split()) == 64
    said = capsys.readouterr().err
    assert "2 clusters are up, and this command would change one; name it with --bootstrap-server HOST:PORT" in said
    assert f"\n  --data {tmp_path}/new\n  --data {tmp_path}/old\nSee: kraftlab " in said


def test_two_options_that_name_a_cluster_are_refused(up: Callable[[str], str], tmp_path: Path) -> None:
    assert "Exactly one of" in asked("--bootstrap-server", "host:1", "--bootstrap-controller", "host:2")
    assert "--data names the cluster already" in asked("--bootstrap-server", "host:1", "--data", str(tmp_path))


def test_without_a_cluster_the_next_step_is_named(up: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "start one with kraftlab up --data DIR, or name a node" in asked()
    assert main.run([]) == 0
    assert "No cluster is up on this machine." in capsys.readouterr().out


def test_the_start_page_names_the_clusters_that_are_up(
    up: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = up("old")
    assert main.run([]) == 0
    assert f"{tmp_path}/old    2 nodes, gRPC {servers.partition(',')[0]}, Kafka clients 127.0.0.1:" in capsys.readouterr().out


def test_a_fault_never_chooses_between_clusters(
    up: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["cluster", "kill", "leader"]) == 64
    assert "No cluster is up" in capsys.readouterr().err
    up("old")
    up("new")
    assert main.run(["cluster", "kill", "leader"]) == 64
    assert f"2 clusters are up; name one of {tmp_path}/new, {tmp_path}/old" in capsys.readouterr().err
