"""`kraftlab console`: a cluster in the browser, live."""

from __future__ import annotations

import errno
import importlib
import ipaddress
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kraftlab.common.exit_codes import DONE
from kraftlab.common.extras import not_installed

from ..connection import (
    client_security,
    connect_as,
    default_servers,
    endpoint_options,
    named_servers,
    required_servers,
    selected_directory,
)
from ..output import CommandFailed, WrongUse, json_option, print_json
from .child import PACKAGES

if TYPE_CHECKING:
    import socket
    from types import ModuleType

    from kraftlab.client.security import ClientSecurity
    from kraftlab.common.endpoint import Endpoint
    from kraftlab.console.server import Connect

LISTEN = "127.0.0.1:8090"
RUNS = "jepsen_lite.report.web"
"""Pages of runs, of a room above this one; loaded by name, as its commands are."""


def _endpoint(context: click.Context, parameter: click.Parameter, text: str) -> Endpoint:
    from kraftlab.common.endpoint import Endpoint
    from kraftlab.config.endpoints import parse_endpoint

    if text.endswith(":0") and (found := parse_endpoint(f"{text[:-1]}1")) is not None:
        return Endpoint(found.host, 0)
    found = parse_endpoint(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not HOST:PORT; write for example {LISTEN}, or port 0 for any free port")
    return found


@click.command(
    "console",
    epilog="""\b
Examples:
  kraftlab console                                   # the cluster that is up on this machine
  kraftlab console --data /tmp/lab --allow-chaos     # with buttons that break it; needs kraftlab up --allow-chaos
  kraftlab console --bootstrap-server kafka.example:9092 --read-only
  kraftlab console --runs runs                       # with the runs of kraftlab chaos in that store
  kraftlab console --listen 0.0.0.0:8443 --certificate console.pem --key console.key""",
)
@click.option(
    *("--listen", "at"),
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    callback=_endpoint,
    help="Address of the pages; by default another port if 8090 is in use. Other addresses than loopback need a certificate, or "
    "--insecure.",
)
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Serve https.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="Key of --certificate.")
@click.option(
    "--insecure", is_flag=True, help="Serve http on an address that others can reach, or visitors as the user of a certificate."
)
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="Name of this host in URLs; repeatable.")
@click.option("--read-only", is_flag=True, help="Show only; refuse every change.")
@click.option("--allow-chaos", is_flag=True, help="Offer faults; needs --data, and kraftlab up --allow-chaos there.")
@click.option(
    "--runs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also show the runs of `kraftlab chaos` in this store.",
)
@click.option("--until-eof", is_flag=True, hidden=True, help="End when stdin ends.")
@endpoint_options
@json_option
def console(
    at: Endpoint,
    certificate: Path | None,
    key: Path | None,
    insecure: bool,
    names: tuple[str, ...],
    read_only: bool,
    allow_chaos: bool,
    runs: Path | None,
    until_eof: bool,
    as_json: bool,
) -> int:
    """Serve pages that show a cluster live: quorum, brokers, topics, moves, its past; and change it, if you may.

    The cluster may be one of kraftlab's or of Apache Kafka, which tells less. Nothing is asked of it while no page is open.
    """
    tls = _checked_tls(certificate, key)
    if not _is_loopback(at.host) and tls is None and not insecure:
        raise WrongUse(f"Error: others can reach {at}; give --certificate and --key, or --insecure if the network is trusted")
    server = _server()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("kraftlab.audit").setLevel(logging.INFO)
    servers = named_servers() or default_servers() if runs is not None else required_servers()
    data = selected_directory()
    if allow_chaos and data is None:
        raise WrongUse("Error: --allow-chaos needs the directory of a local cluster; add --data DIR")
    where = ("--data", str(data)) if data is not None else ("--bootstrap-server", servers or "")
    own_names = frozenset(name.lower() for name in (*names, at.host))
    settings = server.Settings(read_only, allow_chaos, data, where, own_names, tls is not None, runs is not None)
    cluster = None if servers is None else _cluster(servers, _security(insecure))
    source = click.get_current_context().get_parameter_source("at")
    listening = listening_at(server, at, chosen=source is not ParameterSource.DEFAULT)
    url = f"{'http' if tls is None else 'https'}://{_shown(at.host)}:{listening.getsockname()[1]}/"

    def ready() -> None:
        if as_json:
            print_json({"url": url})
        else:
            click.echo(f"{url} shows {' and '.join(str(each) for each in (servers, runs) if each is not None)}; Ctrl-C ends")

    pages = {} if runs is None else importlib.import_module(RUNS).pages(runs)
    server.start(listening, cluster, settings, tls, pages, ready, until_eof=until_eof)
    return DONE


def _server() -> ModuleType:
    """Return the server. CommandFailed without the packages that it needs."""
    try:
        from kraftlab.console import server
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise CommandFailed(f"Error: {not_installed(str(error.name), 'console')}") from None
    return server


def _cluster(servers: str, security: ClientSecurity) -> tuple[Connect, tuple[Endpoint, ...]]:
    """Return how to connect to the cluster, and the nodes that are asked first."""
    from kraftlab.config.endpoints import parse_servers

    return lambda other: connect_as(servers, other or security), parse_servers(servers)


def listening_at(server: ModuleType, at: Endpoint, *, chosen: bool) -> socket.socket:
    """Return the socket of the pages: at any free port if that of an address nobody has `chosen` is in use. CommandFailed."""
    from kraftlab.common.endpoint import Endpoint

    try:
        listening: socket.socket = server.listen(at)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not chosen:
            return listening_at(server, Endpoint(at.host, 0), chosen=True)
        why = f"{error.strerror or error}; is another process using the port?"
        raise CommandFailed(f"Error: cannot listen on {at}: {why} Choose another address: --listen HOST:PORT") from None
    return listening


def _checked_tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return the files that serve https. WrongUse, CommandFailed."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise WrongUse("Error: --certificate and --key belong together; give both")
    import ssl

    try:  # a key with a password would be asked for at a terminal, in the middle of the start
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=lambda: "none")
    except (OSError, ValueError) as error:
        what = f"Error: cannot serve https with {certificate} and {key}: {error}"
        raise CommandFailed(f"{what}; give a PEM certificate and its own key, without a password") from None
    return certificate, key


def _security(insecure: bool) -> ClientSecurity:
    """Return the security of the console's own user. WrongUse if visitors cannot log in, unless that is meant."""
    security = client_security()
    by_certificate = security.tls is not None and security.tls.settings.has_keystore and not security.has_sasl
    if by_certificate and not insecure:
        raise WrongUse(
            "Error: this cluster knows users by certificates, so every visitor would act as the user of this command; add "
            "--insecure if that is meant, and --read-only if visitors may only look"
        )
    return security


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
