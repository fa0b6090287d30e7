"""`kraftlab up`: a local cluster of processes in the foreground."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE

from ..output import WrongUse, json_option, print_json
from ..web.child import check_installed, free_port, pages_of

if TYPE_CHECKING:
    from kraftlab.lab import LocalCluster

_POLL_S = 0.5


@click.command(
    "up",
    epilog="""\b
Examples:
  kraftlab up --controllers 3 --brokers 4 --log-dirs 2 --data /tmp/lab
  kraftlab up --data /tmp/lab                       # start the same cluster again, with its data
  kraftlab up --data /tmp/lab --kafka-port 9092     # existing Kafka clients and tools find it at localhost:9092
  kraftlab up --data /tmp/safe --secure             # TLS, logins and access rules, with a user admin for you
  kraftlab up --data /tmp/lab --allow-chaos         # then: kraftlab cluster isolate leader --for 5s --data /tmp/lab
  kraftlab up --data /tmp/lab --console --allow-chaos      # see it, move it and break it in the browser
  kraftlab up --data /tmp/lab2 --allow-chaos --own-disks   # as root; then: kraftlab cluster power-loss leader --for 3s --data …
  kraftlab up --data /tmp/small --controllers 1 --brokers 1 --property log.segment.bytes=1048576""",
)
@click.option("--data", required=True, type=click.Path(), metavar="DIR", help="Directory of the cluster, created if missing.")
@click.option(
    "--controllers", type=click.IntRange(1, 99), metavar="N", help="Number of controllers of a new cluster (default: 3)."
)
@click.option("--brokers", type=click.IntRange(0, 999), metavar="N", help="Number of brokers of a new cluster (default: 4).")
@click.option(
    "--log-dirs", type=click.IntRange(1, 99), metavar="N", help="Log directories per broker of a new cluster (default: 2)."
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a server.properties key on all nodes, for later starts too; repeatable.",
)
@click.option("--unset-property", multiple=True, metavar="KEY", help="Take away a key that --property has set; repeatable.")
@click.option(
    "--allow-chaos",
    is_flag=True,
    help="Allow fault injection with `kraftlab cluster cut`, `kill`, `slow` …, from this machine only.",
)
@click.option(
    "--console",
    "with_console",
    is_flag=True,
    help="Serve pages that show the cluster live, as `kraftlab console` does; with --allow-chaos they can break it.",
)
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    metavar="PORT",
    help="Port of the pages; any free one if this one is taken.",
)
@click.option(
    "--own-disks",
    is_flag=True,
    help="Give each node of a new cluster its own disk (ext4 in a file), for `kraftlab cluster power-loss`. Needs root on Linux.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of the first broker for Kafka clients, for instance 9092; kept for later starts (default: a free port).",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Start a new cluster with TLS, logins and access rules: makes certificates and a user, and prints what clients need.",
)
@json_option
def up(
    data: str,
    controllers: int | None,
    brokers: int | None,
    log_dirs: int | None,
    properties: tuple[str, ...],
    unset_property: tuple[str, ...],
    allow_chaos: bool,
    with_console: bool,
    console_port: int,
    own_disks: bool,
    kafka_port: int | None,
    secure: bool,
    as_json: bool,
) -> int:
    """Start a local cluster in the foreground and print its endpoints. Ctrl-C or SIGTERM stops it cleanly."""
    from kraftlab.lab import LocalCluster

    if with_console:
        check_installed()
        source = click.get_current_context().get_parameter_source("console_port")
        console_port = free_port(console_port, chosen=source is not click.core.ParameterSource.DEFAULT)
    overrides = {}
    for item in properties:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise WrongUse(f"Error: --property {item}: expected KEY=VALUE")
        overrides[key.strip()] = value.strip()
    stop = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster = LocalCluster(
        *(data, controllers, brokers, log_dirs),
        overrides=overrides,
        unset=unset_property,
        say=lambda remark: click.echo(remark, err=True),
        allow_chaos=allow_chaos,
        own_disks=own_disks,
        kafka_port=kafka_port,
        secure=secure,
    )
    try:
        cluster.start()
        seconds = _wait_ready(cluster, stop)
        if seconds is not None:
            with (
                _context(cluster),
                _control(cluster) if allow_chaos else nullcontext() as socket_path,
                pages_of(cluster.directory, console_port, allow_chaos=allow_chaos) if with_console else nullcontext() as pages,
            ):
                announce(cluster, seconds, socket_path, pages, as_json)
                watch(cluster, stop, allow_chaos)
    finally:
        try:
            if not as_json:
                click.echo("stopping …", err=True)
        finally:
            cluster.close()
    return DONE


class StopRequest:
    """A request to stop, set by signal handlers. Several signals may come at once: a threading.Event would then wait for its own
    lock, which the interrupted code holds.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self._requests.put(None)

    def is_set(self) -> bool:
        return not self._requests.empty()

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as the request has come, False if it has not come in time."""
        try:
            self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._requests.put(None)
        return True


@contextmanager
def _context(cluster: LocalCluster) -> Iterator[None]:
    """Let other commands find the cluster without an address. A failure is reported and does not end the cluster."""
    from kraftlab.lab import contexts

    with ExitStack() as stack:
        try:
            stack.enter_context(contexts.published(cluster.directory))
        except (OSError, RuntimeError) as error:
            click.echo(f"commands need --data {cluster.directory}: cannot note the cluster as up ({error})", err=True)
        yield


@contextmanager
def _control(cluster: LocalCluster) -> Iterator[Path]:
    """Serve orders for faults; yield the path of the socket."""
    from kraftlab.lab import prometheus
    from kraftlab.lab.faults.breaker import Breaker
    from kraftlab.lab.faults.metrics import serve_faults
    from kraftlab.lab.faults.server import ControlServer

    breaker = Breaker(cluster, lambda line: click.echo(line, err=True))
    server = ControlServer(cluster.directory, breaker)
    at, metrics = serve_faults(breaker)
    try:
        prometheus.write_faults(cluster.directory, at)
        yield server.path
    finally:
        metrics.stop()
        server.close()
        prometheus.write_faults(cluster.directory, None)


def _wait_ready(cluster: LocalCluster, stop: StopRequest) -> float | None:
    """Return the seconds until the cluster was ready, None if it was stopped before."""
    from kraftlab.lab import ClusterError

    outcome: list[float | ClusterError] = []

    def wait() -> None:
        try:
            outcome.append(cluster.wait_ready())
        except ClusterError as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    while waiter.is_alive() and not stop.is_set():
        waiter.join(0.05)
    if not outcome:
        return None
    if isinstance(outcome[0], ClusterError):
        raise outcome[0]
    return outcome[0]


def announce(cluster: LocalCluster, seconds: float, socket_path: Path | None, pages: str | None, as_json: bool) -> None:
    if as_json:
        socket = {} if socket_path is None else {"control_socket": str(socket_path)}
        socket |= {} if pages is None else {"console": pages}
        faults = {"disk_faults": cluster.disk_faults, "in_doubt": cluster.in_doubt()}
        print_json({"ready_seconds": round(seconds, 3), **cluster.endpoints(), **faults, **socket})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))  # without borders, which do not fit 80 columns
    for column in ("node", "rack", "Kafka clients", "admin API (gRPC)", "metrics", "pid"):
        table.add_column(column, no_wrap=True)
    for node in cluster.plan.nodes:
        kafka = "" if node.kafka is None else str(node.kafka)
        pid = cluster.pid(node.node_id)
        metrics = "" if node.metrics is None else f":{node.metrics.port}"
        table.add_row(node.name, node.rack or "", kafka, str(node.grpc), metrics, "not started" if pid is None else str(pid))
    console = Console()
    if cluster.plan.brokers:
        console.print(f"Kafka clients: {cluster.kafka_bootstrap_servers}", highlight=False, soft_wrap=True)
    console.print(f"admin API (gRPC): {cluster.bootstrap_servers}", highlight=False, soft_wrap=True)
    if pages is not None:
        console.print(f"console: {pages}", highlight=False, soft_wrap=True)
    console.print(f"ready after {seconds:.2f} s", highlight=False)
    console.print(table)
    for fault in (*cluster.disk_faults, *cluster.in_doubt()):
        console.print(fault, highlight=False, soft_wrap=True)
    for line in client_lines(cluster) if cluster.plan.secure else ():
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print("try: kraftlab topics --list", highlight=False, soft_wrap=True)
    console.print(f"logs: {cluster.directory / 'logs'}", highlight=False, soft_wrap=True)
    if socket_path is not None:
        console.print("break it: kraftlab cluster isolate leader --for 5s", soft_wrap=True)
    console.print("Ctrl-C stops the cluster; its data stays.")


def client_lines(cluster: LocalCluster) -> list[str]:
    """Return what clients of a secure cluster need. The password is in files, and not in the scrollback of a terminal."""
    from kraftlab.lab import credentials
    from kraftlab.lab.cluster_plan import CLIENT_PROPERTIES

    secrets = cluster.directory / credentials.SECRETS
    password = f"open({str(secrets / credentials.PASSWORD_FILE)!r}).read()"
    confluent = {"bootstrap.servers": cluster.kafka_bootstrap_servers, **cluster.librdkafka_properties}
    python = {"bootstrap_servers": cluster.kafka_bootstrap_servers, **cluster.kafka_python_options}
    confluent_text = ", ".join(
        f"{key!r}: {password if key == 'sasl.password' else repr(value)}" for key, value in confluent.items()
    )
    python_text = ", ".join(f"{key}={password if key == 'sasl_plain_password' else repr(value)}" for key, value in python.items())
    return [
        f"TLS and logins everywhere. You are {credentials.ADMIN}, who may do everything; others need rules: kraftlab acls",
        f"kraftlab, Java clients (--command-config): {cluster.directory / CLIENT_PROPERTIES}",
        f"librdkafka (kcat -F): {secrets / credentials.LIBRDKAFKA_PROPERTIES}",
        f"confluent-kafka: Producer({{{confluent_text}}})",
        f"kafka-python: KafkaProducer({python_text})",
        f"certificates: {secrets / 'ca.pem'} to trust, {secrets / f'{credentials.ADMIN}.pem'} of {credentials.ADMIN}",
    ]


def watch(cluster: LocalCluster, stop: StopRequest, allow_chaos: bool) -> None:
    """Wait for the end, and report nodes that end by themselves with the next step."""
    from kraftlab.lab.processes import exit_text

    reported: set[int] = set()
    while not stop.wait(_POLL_S):
        exited = cluster.exited()
        for node_id in exited.keys() - reported:
            name, code = cluster.node(node_id).name, exited[node_id]
            how = exit_text(code) if code < 0 else f"{exit_text(code)}: {cluster.last_words(node_id)}"
            again = f"kraftlab cluster restart {name}" if allow_chaos else f"Ctrl-C, then kraftlab up --data {cluster.directory}"
            click.echo(f"{name} {how}\n  start it again: {again}", err=True)
        reported = set(exited)
