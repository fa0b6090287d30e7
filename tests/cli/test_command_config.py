"""The security of commands: where its file is found, and what a person reads when it does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftlab.access.logins import UserLogin
from kraftlab.access.users import Users
from kraftlab.cli.connection import CONFIG_VARIABLE, SERVERS_VARIABLE, client_security, endpoint_options, required_servers
from kraftlab.common.endpoint import Endpoint
from kraftlab.lab import LocalCluster, contexts, layout
from kraftlab.lab.cluster_plan import CLIENT_PROPERTIES, client_properties
from kraftlab.lab.locking import lock

from ..client.secured_servers import Certificates, grpc_server, kafka_server
from ..helpers.certificates import Authority
from ..helpers.commands import run_command

SECRET = "marker-secret"
Run = Callable[..., tuple[int, str, str]]


@click.command()
@endpoint_options
def who() -> None:
    required_servers()
    click.echo(client_security().user or "nobody")


def user_file(path: Path, name: str) -> str:
    path.write_text(f"username={name}\npassword={SECRET}\n")
    return str(path)


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a cluster that is up without its processes, with a user for its clients."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = tmp_path / "lab"
    directory.mkdir()
    with ExitStack() as stack:
        layout.write(directory, layout.plan(directory, 1, 1, 1), {})
        stack.enter_context(lock(directory))
        stack.enter_context(contexts.published(directory))
        user_file(directory / CLIENT_PROPERTIES, "of-the-cluster")
        yield directory


def asked(*arguments: str, **environment: str) -> str:
    return CliRunner().invoke(who, arguments, env=environment).stdout.strip()


@pytest.mark.cluster
def test_an_option_wins_over_the_environment_and_that_over_the_file_of_the_local_cluster(up: Path, tmp_path: Path) -> None:
    option, variable = (
        user_file(tmp_path / "o", "of-the-option"),
        {CONFIG_VARIABLE: user_file(tmp_path / "e", "of-the-environment")},
    )
    assert asked() == "of-the-cluster"
    assert asked("--data", str(up)) == "of-the-cluster"
    assert asked(**variable) == "of-the-environment"
    assert asked("--command-config", option, **variable) == "of-the-option"
    assert asked("--user", "of-the-shell", KRAFTLAB_PASSWORD="x") == "of-the-shell"


@pytest.mark.cluster
def test_a_cluster_that_is_named_by_address_gets_no_password_of_a_local_one(up: Path) -> None:
    assert asked("--bootstrap-server", "host:1") == "nobody"
    assert asked(**{SERVERS_VARIABLE: "host:1"}) == "nobody"


@pytest.mark.cluster
def test_a_local_cluster_has_the_security_of_its_file(up: Path) -> None:
    assert client_properties(up) == up / CLIENT_PROPERTIES
    cluster = LocalCluster.__new__(LocalCluster)
    cluster.directory = up
    assert cluster.security.user == "of-the-cluster"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, authority: Authority) -> Run:
    """Runs `kraftlab cluster cluster-id` at an endpoint with these lines as --command-config."""

    def call(endpoint: Endpoint, *lines: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        file = tmp_path / "client.properties"
        file.write_text("\n".join((f"sasl.oauthbearer.token={SECRET}", f"ssl.key.password={SECRET}", *lines)))
        where = ("--bootstrap-server", str(endpoint), "--command-config", str(file))
        return run_command(capsys, "cluster", "cluster-id", *where, *options)

    return call


def trusting(authority: Authority) -> tuple[str, ...]:
    return "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.certificate}"


def with_key(authority: Authority) -> tuple[str, ...]:
    key = authority.issue("alice", names=())
    return "security.protocol=SSL", *trusting(authority), "ssl.keystore.type=PEM", f"ssl.keystore.location={key}"


@pytest.mark.parametrize("serve", [grpc_server, kafka_server])
def test_a_command_finds_out_under_tls_which_protocol_a_server_speaks(serve: object, authority: Authority, run: Run) -> None:
    assert callable(serve)
    with serve(Certificates(authority, authority.issue("node"), requires=True)) as endpoint:
        code, out, err = run(endpoint, *with_key(authority))
    assert (code, err) == (0, "")
    assert out in ("Cluster ID: User:CN=alice\n", "Cluster ID: k\n")


def test_a_command_logs_in_under_tls(authority: Authority, run: Run) -> None:
    jaas = f'x.PlainLoginModule required username="alice" password="{SECRET}";'
    lines = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", f"sasl.jaas.config={jaas}", *trusting(authority))
    for password, expected in ((SECRET, (0, "Cluster ID: User:alice\n", "")), ("other", None)):
        login = UserLogin(Users({"alice": password}))
        with grpc_server(Certificates(authority, authority.issue("node")), login) as endpoint:
            found = run(endpoint, *lines)
        if expected:
            assert found == expected
        else:
            assert (found[0], found[2].count("\n")) == (1, 1)
            assert "the password of user alice is wrong" in found[2]


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("serve", [grpc_server, kafka_server])
def test_a_failure_is_one_line_with_the_next_step_and_without_a_secret(
    serve: object, options: tuple[str, ...], authority: Authority, run: Run, tmp_path: Path
) -> None:
    assert callable(serve)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with serve(Certificates(stranger, stranger.issue("node"))) as endpoint:
        code, out, err = run(endpoint, *with_key(authority), options=options)
    said = out + err
    assert (code, said.count("\n")) == (1, 1)
    assert "set ssl.truststore.location to the CA's certificate" in said
    assert SECRET not in said


def test_a_file_that_is_not_there_is_named(run: Run, authority: Authority) -> None:
    lines = ("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=/nowhere.pem")
    code, _, err = run(Endpoint("127.0.0.1", 1), *lines)
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot read /nowhere.pem" in err
