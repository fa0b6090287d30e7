"""`kraftlab leader-election`: elect leaders (kafka-leader-election)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..completion.values import complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import Output, WrongUse, json_option
from ..partition_files import read_partitions

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb

_EXAMPLE = '{"partitions":[{"topic":"t","partition":0}]}'
_TYPES = {"preferred": 0, "unclean": 1}


def _refuse(message: str) -> WrongUse:
    return WrongUse(f"{message}\nSee: kraftlab leader-election --help")


def check_usage(topic: str | None, partition: int | None, path: Path | None, of_all: bool) -> None:
    """Refuse options that do not name partitions in exactly one way. CommandFailed."""
    if sum((topic is not None, path is not None, of_all)) != 1:
        raise _refuse("Exactly one of --topic (with --partition), --path-to-json-file and --all-topic-partitions is needed")
    if (topic is None) != (partition is None):
        raise _refuse("--topic and --partition must be given together")


@click.command(
    "leader-election",
    epilog="""\b
Examples:
  kraftlab leader-election --election-type preferred --all-topic-partitions
  kraftlab leader-election --election-type preferred --topic t --partition 0
  kraftlab leader-election --election-type unclean --path-to-json-file p.json

\b
p.json: {"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}""",
)
@bootstrap_option
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(list(_TYPES), case_sensitive=False),
    help="preferred: elect the first replica, if it is in sync. unclean: for partitions without a leader, also elect a replica "
    "that may lack records.",
)
@click.option(
    "--topic",
    metavar="NAME",
    shell_complete=complete_topics,
    help="Elect a leader for one partition of this topic; needs --partition.",
)
@click.option("--partition", type=int, metavar="N", help="The partition of --topic.")
@click.option(
    "--path-to-json-file", type=click.Path(path_type=Path, dir_okay=False), help="Elect leaders for the partitions in this file."
)
@click.option("--all-topic-partitions", is_flag=True, help="Elect leaders for every partition that needs it.")
@caller_options
@json_option
def leader_election(
    election_type: str,
    topic: str | None,
    partition: int | None,
    path_to_json_file: Path | None,
    all_topic_partitions: bool,
    as_json: bool,
) -> int:
    """Elect leaders for partitions: one (--topic, --partition), those in a file, or all."""
    from kraftlab.client import answer_of

    check_usage(topic, partition, path_to_json_file, all_topic_partitions)
    partitions: list[tuple[str, int]] | None = None
    if path_to_json_file is not None:
        partitions = list(read_partitions(path_to_json_file, _EXAMPLE))
    if topic is not None and partition is not None:
        partitions = [(topic, partition)]
    with connect(changes=True) as client:
        response = answer_of(lambda: client.elect_leaders(_TYPES[election_type.lower()], partitions))
    return report(response, election_type.upper(), Output(as_json))


def report(response: pb.ElectLeadersResponse, election_type: str, out: Output) -> int:
    """Print the results of an election and return the exit code."""
    from kraftlab.client.errors import api_error
    from kraftlab.common.errors import ErrorCode

    done: list[str] = []
    needless: list[str] = []
    failed: list[dict[str, Any]] = []
    for result in response.replica_election_results:
        for entry in result.partition_result:
            name = f"{result.topic}-{entry.partition_id}"
            if entry.error_code == ErrorCode.NONE:
                done.append(name)
            elif entry.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                needless.append(name)
            else:
                error = api_error(entry.error_code, entry.error_message)
                failed.append({"partition": name, "error": error.code.name, "message": error.message})
    if done:
        out.lines([f"Successfully completed leader election ({election_type}) for partitions {', '.join(done)}"])
    if needless:
        out.lines([f"Valid replica already elected for partitions {', '.join(needless)}"])
    if not done and not needless and not failed:
        out.lines([f"No partition needs an election ({election_type})"])
    out.lines(
        f"Error completing leader election ({election_type}) for partition: {entry['partition']}: {entry['error']}: "
        f"{entry['message']}"
        for entry in failed
    )
    out.result({"election_type": election_type, "elected": done, "not_needed": needless, "failed": failed})
    return FAILED if failed else DONE
