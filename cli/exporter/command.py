"""`kraftlab exporter`: consumer lag and topics of a cluster for Prometheus, under kafka_exporter's names."""

from __future__ import annotations

import logging
import re
import signal
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..connection import caller_options, connector, required_servers, server_option
from ..output import CommandFailed

if TYPE_CHECKING:
    from kraftlab.common.endpoint import Endpoint

STOPS = (signal.SIGINT, signal.SIGTERM)
LISTEN = "127.0.0.1:9308"


def _endpoint(context: click.Context, parameter: click.Parameter, text: str) -> Endpoint:
    from kraftlab.config.endpoints import parse_endpoint

    found = parse_endpoint(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 1 to 65535; write for example {LISTEN}")
    return found


def _pattern(context: click.Context, parameter: click.Parameter, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from None


@click.command(
    "exporter",
    epilog="""\b
Examples:
  kraftlab exporter --bootstrap-server 127.0.0.1:9092
  kraftlab exporter --bootstrap-server 127.0.0.1:9092 --topic-filter '^orders' --group-filter '^(?!console-)'
  kraftlab exporter --once | grep kafka_consumergroup_lag_sum""",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    callback=_endpoint,
    help="Address of /metrics and /livez, which need no login.",
)
@click.option(
    *("--interval", "interval_s"),
    type=click.FloatRange(min=0, max=3600),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Ask the cluster at most once in this time, however many scrapers there are.",
)
@click.option(
    *("--topic-filter", "topics"),
    metavar="REGEX",
    default="",
    callback=_pattern,
    help="Only topics with a name in which this is found.",
)
@click.option(
    *("--group-filter", "groups"),
    metavar="REGEX",
    default="",
    callback=_pattern,
    help="Only consumer groups with an id in which this is found.",
)
@click.option("--once", is_flag=True, help="Print the metrics once and end; exit code 1 if the cluster cannot be read.")
@server_option()
@caller_options
def exporter(listen: Endpoint, interval_s: float, topics: re.Pattern[str], groups: re.Pattern[str], once: bool) -> int:
    """Serve consumer lag and topics of a cluster to Prometheus, under the names of danielqsj/kafka_exporter.

    The cluster may be one of kraftlab's or of Apache Kafka. One exporter is enough for a cluster. It runs until Ctrl-C or
    SIGTERM, also while the cluster is down: kraftlab_exporter_up is 0 then.
    """
    from kraftlab.metrics.server import MetricsServer

    from .exporter import Exporter

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    say = logging.getLogger("kraftlab.exporter").warning
    made = Exporter(connector(), topics.search, groups.search, interval_s, say)
    if once:
        click.echo(made.text(), nl=False)
        return DONE if made.is_up else FAILED
    try:
        server = MetricsServer(listen, made.pages())
    except OSError as error:
        why = f"{error.strerror or error}; is another process using the port?"
        raise CommandFailed(f"Error: cannot listen on {listen}: {why} Choose another address: --listen HOST:PORT") from None
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    server.start()
    click.echo(f"http://{listen}/metrics has the metrics of {required_servers()}")
    signal.sigwait(STOPS)
    server.stop()
    made.close()
    return DONE
