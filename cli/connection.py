"""The cluster that a command talks to, and the user it asks as: the options, and the client that they make.

The options leave their values in the context; `connect` makes a client of them. Without `--bootstrap-server` and
`--bootstrap-controller` a command asks the cluster of `--data DIR`, otherwise the servers of KRAFTLAB_BOOTSTRAP_SERVER, otherwise
the newest cluster that `kraftlab up` runs on this machine. If several are up, a command that changes something is refused.

A cluster speaks gRPC, or the Kafka protocol: Apache Kafka, or the KAFKA listeners of our brokers. `kafka://HOST:PORT` and
`grpc://HOST:PORT` say which; without a protocol the first server that answers is asked (`client/kafka_probe.py`).

TLS and the user come from a properties file, as Kafka's tools have it: that of `--command-config`, otherwise that of
KRAFTLAB_COMMAND_CONFIG, otherwise `client.properties` in the directory of the local cluster. A password is never an argument,
where others of the machine could read it: it comes from the file, or from the environment (`--user`). Without a file and a user
the command asks as ANONYMOUS.
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
    from kraftlab.client.security import ClientSecurity
    from kraftlab.common.endpoint import Endpoint

PASSWORD_VARIABLE = "KRAFTLAB_PASSWORD"
SERVERS_VARIABLE = "KRAFTLAB_BOOTSTRAP_SERVER"
CONFIG_VARIABLE = "KRAFTLAB_COMMAND_CONFIG"

_KEYS = ("servers", "controllers", "data", "user", "command_config", "directory")
_SERVERS, _CONTROLLERS, _DATA, _USER, _FILE, _DIRECTORY = (f"kraftlab.{key}" for key in _KEYS)

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
    help: str = "Kafka's client properties: security.protocol with its keys, or just username and password. Default: "
    f"${CONFIG_VARIABLE}, else client.properties of the local cluster.",
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
    """Return the nodes of the cluster that is up on a directory, and remember the directory for its client.properties."""
    from kraftlab.lab import contexts

    servers = ",".join(str(node.grpc) for node in contexts.plan_of(directory).nodes)
    click.get_current_context().meta[_DIRECTORY] = directory
    return servers


def asks_controllers() -> bool:
    """Return whether the running command has `--bootstrap-controller`."""
    return _CONTROLLERS in click.get_current_context().meta


def connect(servers: str | None = None, *, changes: bool = False, **options: Any) -> AdminClient:
    """Return a client of these servers, or of those that the options name, for the user of the options. A command that `changes`
    something never chooses between clusters. CommandFailed.
    """
    return _connector(servers or required_servers(changes=changes), {"on_wait": _report} | options)()


def connect_as(servers: str, security: ClientSecurity) -> AdminClient:
    """Return a client of servers, which the options have named, for the user of a security. ConfigError."""
    from kraftlab.client import AdminClient

    return AdminClient(_with_protocol(servers, security), security=security)


def selected_directory() -> Path | None:
    """Return the directory of the local cluster that the options, or their defaults, have named. None for other clusters."""
    directory: Path | None = click.get_current_context().meta.get(_DIRECTORY)
    return directory


def connector() -> Callable[[], AdminClient]:
    """Return a function that makes such a client each time that it is called, in any thread. CommandFailed, also when called."""
    return _connector(required_servers(), {})


def _connector(servers: str, options: dict[str, Any]) -> Callable[[], AdminClient]:
    from kraftlab.client import AdminClient

    _show_waiting()
    security = client_security()

    def connected() -> AdminClient:
        try:
            return AdminClient(_with_protocol(servers, security), security=security, **options)
        except ValueError as error:
            raise CommandFailed(f"Error: {error}") from None

    return connected


def _with_protocol(servers: str, security: ClientSecurity) -> str:
    """Return the servers, with the name of the Kafka protocol if they speak it."""
    from kraftlab.config.endpoints import named_protocol, parse_servers

    if named_protocol(servers) is None:
        from kraftlab.client.kafka_probe import speaks_kafka

        if speaks_kafka(parse_servers(servers), security):
            return f"{KAFKA}://{servers}"
    return servers


def client_security() -> ClientSecurity:
    """Return the security of the options, or of their defaults. CommandFailed."""
    from kraftlab.client.security import NO_SECURITY, ClientSecurity
    from kraftlab.config.errors import ConfigError

    context = click.get_current_context()
    user, password = context.meta.get(_USER), os.environ.get(PASSWORD_VARIABLE)
    if user is not None and password is None:
        raise WrongUse(
            f"Error: --user {user}: no password is in the environment; set {PASSWORD_VARIABLE}, or write username and password "
            "into a file for --command-config"
        )
    path = command_config()
    try:
        if path is not None:
            from kraftlab.config import properties  # loads a parser, which most commands do not need

            return ClientSecurity.of(properties.load(path), path, user=user, password=password)
        return NO_SECURITY if user is None else ClientSecurity(user=user, password=password or "")
    except ConfigError as error:
        raise CommandFailed(f"Error: {error}") from None


def command_config() -> str | None:
    """Return the path of the properties of the running command: of --command-config, otherwise of the environment, otherwise of
    the local cluster that was found without an address. None without any.
    """
    meta = click.get_current_context().meta
    found: str | None = meta.get(_FILE) or os.environ.get(CONFIG_VARIABLE)
    if found is None and (directory := meta.get(_DIRECTORY)) is not None:
        from kraftlab.lab.cluster_plan import client_properties

        file = client_properties(directory)
        return None if file is None else str(file)
    return found


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
