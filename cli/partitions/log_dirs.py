"""`kraftlab log-dirs`: the log directories of brokers and their replicas (kafka-log-dirs), and their repair after a failure."""

from __future__ import annotations

import click

from kraftlab.common.exit_codes import DONE

from ..completion.values import complete_brokers, complete_log_dirs, complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import Output, WrongUse, json_option

FORMATS = ("table", "kafka")
READS = ("describe", "replicas", "moves")


@click.command(
    "log-dirs",
    epilog="""\b
Examples:
  kraftlab log-dirs --describe
  kraftlab log-dirs --describe --broker-list 0,1 --topic-list orders --json
  kraftlab log-dirs --replicas --partition-list orders-0,orders-1
  kraftlab log-dirs --moves --watch
  kraftlab log-dirs --online /data/d1 --broker 0
  kraftlab log-dirs --promote orders-3 --broker 0
  kraftlab log-dirs --drop orders-3 --broker 0 --force

\b
--describe prints a table on a terminal, otherwise the lines of Kafka's tool. --json adds sizes of the directories (KIP-827),
and the rate and the remaining bytes of moves. Brokers that do not answer are named; the exit code is then 1.""",
)
@bootstrap_option
@click.option("--describe", is_flag=True, help="Describe log directories.")
@click.option("--replicas", is_flag=True, help="Show the directory and the lag of each replica, and those it moves to.")
@click.option("--moves", is_flag=True, help="Show the replicas that are being filled on any broker, by moves or from leaders.")
@click.option("--watch", is_flag=True, help="With --moves: refresh until none is left; with --json one document a line.")
@click.option(
    "--online",
    metavar="DIR",
    shell_complete=complete_log_dirs,
    help="Bring a log directory that failed back, once its disk is repaired and mounted.",
)
@click.option("--promote", metavar="COPY", help="Make a kept copy, TOPIC-PARTITION or its path, the log of its replica.")
@click.option("--drop", metavar="COPY", help="Delete a kept copy, TOPIC-PARTITION or its path.")
@click.option(
    "--broker",
    type=click.IntRange(min=0),
    metavar="ID",
    shell_complete=complete_brokers,
    help="The broker of --online, --promote and --drop.",
)
@click.option("--force", is_flag=True, help="With --promote or --drop: do not ask for confirmation.")
@click.option("--broker-list", metavar="IDS", shell_complete=complete_brokers, help="Only these brokers, for example 0,1.")
@click.option("--topic-list", metavar="TOPICS", shell_complete=complete_topics, help="Only these topics, separated by commas.")
@click.option("--partition-list", metavar="PARTITIONS", help="Only these partitions (and topics), for example orders-0,orders-1.")
@click.option(
    "--dir-list",
    metavar="DIRS",
    shell_complete=complete_log_dirs,
    help="Only these log directories, paths or ids separated by commas.",
)
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Format of --describe (default: table on a terminal).")
@caller_options
@json_option
def log_dirs(
    describe: bool,
    replicas: bool,
    moves: bool,
    watch: bool,
    online: str | None,
    promote: str | None,
    drop: str | None,
    broker: int | None,
    force: bool,
    broker_list: str | None,
    topic_list: str | None,
    partition_list: str | None,
    dir_list: str | None,
    format_: str | None,
    as_json: bool,
) -> int:
    """Show the log directories of brokers and the replicas in them; bring directories back after a failure."""
    out = Output(as_json)
    reads = [name for name, given in zip(READS, (describe, replicas, moves), strict=True) if given]
    actions = [*reads, *(each for each in (online, promote, drop) if each is not None)]
    _check_actions(actions, moves=moves, watch=watch, describe=describe, format_=format_)
    if reads:
        from . import log_dir_reports as reports

        wanted = reports.Filters(broker_list, topic_list, partition_list, dir_list)
        with connect() as client:
            if replicas:
                return reports.show_replicas(client, wanted, out)
            if moves:
                return reports.show_moves(client, wanted, out, watches=watch)
            as_table = not as_json and (format_ or ("table" if out.width else "kafka")) == "table"
            return reports.describe(client, wanted, out, as_table=as_table)
    if broker is None:
        raise WrongUse("Error: --online, --promote and --drop need --broker ID; kraftlab log-dirs --describe shows the brokers")

    from .log_dir_repairs import bring_online, resolve

    with connect(changes=True) as client:
        if online is not None:
            bring_online(client, broker, online, out)
        else:
            resolve(client, broker, promote or drop or "", out, promote=promote is not None, force=force)
    return DONE


def _check_actions(actions: list[str], *, moves: bool, watch: bool, describe: bool, format_: str | None) -> None:
    if not actions:
        raise WrongUse('Missing required argument "[describe]"\nSee: kraftlab log-dirs --help')
    if len(actions) > 1:
        raise WrongUse("Error: give one of --describe, --replicas, --moves, --online, --promote and --drop")
    if watch and not moves:
        raise WrongUse("Error: --watch refreshes --moves; add --moves")
    if format_ is not None and not describe:
        raise WrongUse("Error: --format is the format of --describe; leave it out, or take --json")
