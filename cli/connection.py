"""The cluster that a command talks to, and the user it asks as: the options, and the client that they make.

The options leave their values in the context; `connect` makes a client of them. Without `--bootstrap-server` and
`--bootstrap-controller` a command asks the cluster of `--data DIR`, otherwise the servers of KRAFTLAB_BOOTSTRAP_SERVER, otherwise
the newest cluster that `kraftlab up` runs on this machine. If several are up, a command that changes something is refused.

A cluster speaks gRPC, or the Kafka protocol: Apache Kafka, or the KAFKA listeners of our brokers. `kafka://HOST:PORT` and
`grpc://HOST:PORT` say which; without a protocol the first server that answers is asked (`client/kafka_probe.py`). A file with
security.protocol SSL or SASL_SSL is for the Kafka protocol.

A password is never an argument, where others of the machine could read it: it comes from the environment (`--user`) or from a
properties file (`--command-config`), which has `username` and `password`, or a `sasl.jaas.config` with both, as Kafka's tools do.
Without either option the command asks as ANONYMOUS.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlab.config.endpoints import KAFKA

from .output import CommandFailed, WrongUse

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.client.kafka_security import KafkaSecurity
    from kraftlab.common.endpoint import Endpoint

PASSWORD_VARIABLE = "KRAFTLAB_PASSWORD"
SERVERS_VARIABLE = "KRAFTLAB_BOOTSTRAP_SERVER"

_KEYS = ("servers", "controllers", "data", "user", "command_config")
_SERVERS, _CONTROLLERS, _DATA, _USER, _FILE = (f"kraftlab.{key}" for key in _KEYS)

F = TypeVar("F", bound=Callable[..., object])


def _remembered(name: str, key: str, metavar: str, help: str, **details: Any) -> Callable[[F], F]:
    """Return an option whose value goes into the context under `key`, and with `expose_value` to the command too."""

    def remember(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and key in (_SERVERS, _CONTROLLERS):
            _check_servers(value)
        if value is not None:
            context.meta[key] = value
        return value

    return click.option(name, metavar=metavar, help=help, callback=remember, **({"expose_value": False} | details))


def _check_servers(text: str, where: str = "") -> None:
    """WrongUse unless the text names servers."""
    from kraftlab.config.endpoints import parse_servers
    from kraftlab.config.errors import ConfigError

    try:
        parse_servers(text)
    except ConfigError as error:
        raise WrongUse(f"Error: {where}{error}") from None


def server_option(**details: Any) -> Callable[[F], F]:
    """Add `--bootstrap-server` and `--data`."""
    help = (
        f"gRPC endpoints of any nodes, or brokers of Apache Kafka. Default: ${SERVERS_VARIABLE}, else the cluster that is up on "
        "this machine; of several the newest, and no command changes it."
    )
    server = _remembered("--bootstrap-server", _SERVERS, "HOST:PORT[,…]", help, **details)
    data = _remembered(
        "--data", _DATA, "DIR", "Ask the cluster that `kraftlab up --data DIR` runs, instead of --bootstrap-server."
    )
    return lambda command: server(data(command))


def controller_option(**details: Any) -> Callable[[F], F]:
    return _remembered(
        "--bootstrap-controller",
        _CONTROLLERS,
        "HOST:PORT[,…]",
        "Controllers (gRPC endpoints, or listeners of Kafka's controllers), instead of --bootstrap-server.",
        **details,
    )


def command_config_option(
    help: str = "Properties file with username and password, or Kafka's sasl.jaas.config; for Kafka also security.protocol.",
    **details: Any,
) -> Callable[[F], F]:
    return _remembered("--command-config", _FILE, "FILE", help, **details)


bootstrap_option = server_option()
user_option = _remembered(
    "--user", _USER, "NAME", f"Ask as this user; the password is read from the environment variable {PASSWORD_VARIABLE}."
)


def caller_options(command: F) -> F:
    """Add `--user` and `--command-config`."""
    return user_option(command_config_option()(command))


def endpoint_options(command: F) -> F:
    """Add `--bootstrap-server`, `--data`, `--bootstrap-controller` and the options of the user."""
    return server_option()(controller_option()(caller_options(command)))


def named_servers() -> str | None:
    """Return the endpoints that the options of the running command name, None without such an option.

    CommandFailed if more than one option names a cluster; ClusterError if no cluster is up on the directory of `--data`.
    """
    context = click.get_current_context()
    if _SERVERS in context.meta and _CONTROLLERS in context.meta:
        raise _refused("Exactly one of --bootstrap-server and --bootstrap-controller is needed")
    servers: str | None = context.meta.get(_SERVERS, context.meta.get(_CONTROLLERS))
    if (data := context.meta.get(_DATA)) is None:
        return servers
    if servers is not None:
        raise _refused("Error: --data names the cluster already; leave --bootstrap-server and --bootstrap-controller out")
    return _servers_on(Path(data))


def default_servers(*, changes: bool = False) -> str | None:
    """Return the endpoints for a command whose options name no cluster, None if there are none.

    If several clusters are up, stderr names the one that is asked. CommandFailed if the command `changes` something then,
    WrongUse if the variable names no servers.
    """
    if servers := os.environ.get(SERVERS_VARIABLE):
        _check_servers(servers, f"{SERVERS_VARIABLE}: ")
        return servers
    from kraftlab.lab import contexts

    directories = contexts.running()
    if len(directories) > 1 and changes:
        listed = "\n".join(f"  --data {directory}" for directory in directories)
        raise _refused(
            f"Error: {len(directories)} clusters are up, and this command would change one; name it with --bootstrap-server "
            f"HOST:PORT, or with one of:\n{listed}"
        )
    if len(directories) > 1:
        click.echo(f"{len(directories)} clusters are up; asking the newest, {directories[0]} (--data names another)", err=True)
    return _servers_on(directories[0]) if directories else None


def _servers_on(directory: Path) -> str:
    from kraftlab.lab import contexts

    return ",".join(str(node.grpc) for node in contexts.plan_of(directory).nodes)


def asks_controllers() -> bool:
    """Return whether the running command has `--bootstrap-controller`."""
    return _CONTROLLERS in click.get_current_context().meta


def connect(servers: str | None = None, *, changes: bool = False, **options: Any) -> AdminClient:
    """Return a client of these servers, or of those that the options name, for the user of the options. A command that `changes`
    something never chooses between clusters. CommandFailed.
    """
    from kraftlab.client import AdminClient

    _show_waiting()
    servers = servers or required_servers(changes=changes)
    meta = click.get_current_context().meta
    user, password = _caller(meta)
    if (kafka := _kafka(servers, meta.get(_FILE), user, password)) is not None:
        named = servers if servers.startswith(f"{KAFKA}://") else f"{KAFKA}://{servers}"
        return AdminClient(named, kafka=kafka, **options)
    if user is None:
        return AdminClient(servers, on_wait=_report, **options)
    try:
        return AdminClient(servers, user=user, password=password, on_wait=_report, **options)
    except ValueError as error:
        raise CommandFailed(f"Error: {error}") from None


def _kafka(servers: str, path: str | None, user: str | None, password: str | None) -> KafkaSecurity | None:
    """Return the security for servers that speak the Kafka protocol, None for gRPC. ConfigError."""
    from kraftlab.config.endpoints import GRPC, named_protocol, parse_servers

    protocol = named_protocol(servers)
    if protocol == GRPC:
        return None
    values = _properties(path) if path is not None else {}
    if protocol is None and not values.get("security.protocol", "").upper().endswith("SSL"):
        from kraftlab.client.kafka_probe import speaks_kafka

        if not speaks_kafka(parse_servers(servers)):
            return None
    from kraftlab.client.kafka_security import kafka_security

    return kafka_security(values, user, password, path or "--user")


def _report(finding: str) -> None:
    """Tell the caller on stderr why a command waits."""
    click.echo(f"Still waiting: {finding}", err=True)


def _show_waiting() -> None:
    """Show a person at a terminal that a client waits for an answer."""
    if sys.stderr.isatty():
        logger = logging.getLogger("kraftlab.client")
        logger.setLevel(logging.INFO)
        logger.addHandler(logging.StreamHandler())


def required_servers(*, changes: bool = False) -> str:
    """Return the endpoints that the options name, otherwise the default (`default_servers`). CommandFailed if there is none."""
    servers = named_servers() or default_servers(changes=changes)
    if servers is None:
        path = click.get_current_context().command_path
        raise CommandFailed(
            "Error: no cluster is up on this machine; start one with kraftlab up --data DIR, or name a node: --bootstrap-server "
            "HOST:PORT\n"
            f"See: {path} --help"
        )
    return servers


def endpoint_of(client: AdminClient, node_id: int | None) -> Endpoint:
    """Return the endpoint of a node, of the first server that the options name without an id. ApiError BROKER_NOT_AVAILABLE."""
    from kraftlab.config.endpoints import parse_servers

    return parse_servers(required_servers())[0] if node_id is None else client.endpoint_of(node_id)


def _refused(message: str) -> WrongUse:
    return WrongUse(f"{message}\nSee: {click.get_current_context().command_path} --help")


def _caller(meta: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return (user, password), or None and None."""
    user, path = meta.get(_USER), meta.get(_FILE)
    if user is None:
        return _caller_in(path) if path is not None else (None, None)
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise WrongUse(
            f"Error: --user {user}: no password is in the environment; set {PASSWORD_VARIABLE}, or write username and password "
            "into a file for --command-config"
        )
    return user, password


def _properties(path: str) -> dict[str, str]:
    from kraftlab.config import properties  # loads a parser, which most commands do not need

    return properties.load(path)


def _caller_in(path: str) -> tuple[str | None, str | None]:
    values = _properties(path)
    if (jaas := values.get("sasl.jaas.config")) is not None:
        from kraftlab.config.errors import ConfigError
        from kraftlab.config.jaas import parse_jaas

        try:
            values = parse_jaas(jaas).options | values
        except ConfigError as error:
            raise CommandFailed(f"Error: {path}: sasl.jaas.config: {error}") from None
    user, password = values.get("username"), values.get("password")
    if (user is None) != (password is None):
        given, missing = ("username", "password") if password is None else ("password", "username")
        raise CommandFailed(f"Error: {path} has a {given} and no {missing}; add {missing}=… to it")
    return user, password
