"""`kraftlab storage`: format and inspect data directories, generate ids (kafka-storage)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..command_groups import CommandGroup
from ..output import Output, WrongUse, json_option


@click.group(
    "storage",
    cls=CommandGroup,
    epilog="""\b
Examples:
  kraftlab storage format -t "$(kraftlab storage random-uuid)" -c controller.properties --standalone
  kraftlab storage info -c controller.properties""",
)
def storage() -> None:
    """Format and inspect data directories, and generate ids."""


@storage.command(
    "random-uuid",
    epilog="""\b
Example:
  CLUSTER=$(kraftlab storage random-uuid)""",
)
def random_uuid() -> int:
    """Print a random id for a new cluster or directory."""
    from kraftlab.config import storage as logic

    click.echo(logic.random_cluster_id())
    return DONE


@storage.command(
    "format",
    short_help="Format a node's directories.",
    epilog="""\b
Examples:
  kraftlab storage format -t "$(kraftlab storage random-uuid)" -c controller.properties --standalone
  kraftlab storage format -t CLUSTER-ID -c controller.properties --initial-controllers \\
      3000@127.0.0.1:19093:DIRECTORY-ID,3001@127.0.0.1:19094:DIRECTORY-ID   # the same on each of them
  kraftlab storage format -t CLUSTER-ID -c controller.properties --no-initial-controllers
  kraftlab storage format -t CLUSTER-ID -c broker.properties
  kraftlab storage format -t CLUSTER-ID -c controller.properties --standalone --feature eligible.leader.replicas.version=0
  kraftlab storage format -t CLUSTER-ID -c controller.properties --standalone --add-scram-file users.scram

\b
--standalone, --initial-controllers and --no-initial-controllers are for controllers with
controller.quorum.bootstrap.servers, whose voters are in the metadata log: give one of them.
With static voters (controller.quorum.voters) give none.

\b
A line of users.scram: SCRAM-SHA-512=[name=alice,password=…]. Other users of this machine can read --add-scram, with the
password, while the command runs. Instead of the password: saltedpassword and salt, in base64.""",
)
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="Id of the cluster that the directories will belong to.")
@click.option("--config", "-c", required=True, metavar="FILE", help="A Kafka-style server.properties.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip directories that are formatted already.")
@click.option("--standalone", "-s", is_flag=True, help="Make this controller the only voter of a new quorum.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY-ID,…",
    help="The voters of a new quorum, including this controller.",
)
@click.option("--no-initial-controllers", "-N", is_flag=True, help="Let this controller join an existing quorum.")
@click.option(
    "--release-version",
    "-r",
    metavar="RELEASE",
    help="Start a new cluster with the feature levels of this release, for example 4.2.",
)
@click.option(
    "--feature",
    "-f",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="Start a new cluster with this feature level; repeatable.",
)
@click.option(
    "--add-scram",
    "-S",
    multiple=True,
    metavar="MECHANISM=[name=…,password=…]",
    help="Start a new cluster with this SCRAM user; repeatable. Better in a file: others can see the command line.",
)
@click.option(
    "--add-scram-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="File with such a user in each line, - for standard input.",
)
@json_option
def format_directories(
    cluster_id: str,
    config: str,
    ignore_formatted: bool,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    features: tuple[str, ...],
    add_scram: tuple[str, ...],
    add_scram_file: Path | None,
    as_json: bool,
) -> int:
    """Format a node's directories: write the ids of cluster, node and directory, and the first voters of a new quorum."""
    from kraftlab.config import bootstrap_levels, bootstrap_scram, initial_voters
    from kraftlab.config import storage as logic
    from kraftlab.config.models import load_any

    out = Output(as_json)
    node = load_any(config)
    initial = initial_voters.choose(
        node,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
    )
    levels = bootstrap_levels.choose(release_version, features) if release_version is not None or features else None
    credentials = bootstrap_scram.parse([*add_scram, *_lines(add_scram_file)])
    lines = logic.format(node, cluster_id, ignore_formatted, initial, levels, credentials)
    out.lines(lines)
    out.result({"cluster_id": cluster_id, "messages": lines})
    return DONE


def _lines(path: Path | None) -> list[str]:
    """Return the lines of a file, or of standard input, that are not blank. OSError; WrongUse for other bytes than UTF-8."""
    if path is None:
        return []
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        return [line for line in data.decode().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise WrongUse(f"Error: {path} is not UTF-8 text; write the users in UTF-8") from None


@storage.command(
    "info",
    epilog="""\b
Examples:
  kraftlab storage info -c controller.properties
  kraftlab storage info -c /tmp/lab/broker-0/server.properties --json""",
)
@click.option("--config", "-c", required=True, metavar="FILE", help="A Kafka-style server.properties.")
@json_option
def info(config: str, as_json: bool) -> int:
    """Show a node's directories: their ids, voters and problems. Exit code 1 if there are problems."""
    from kraftlab.config import storage as logic
    from kraftlab.config.models import load_any

    out = Output(as_json)
    found = logic.info(load_any(config))
    out.lines(info_lines(found))
    out.result(
        {
            "directories": [str(path) for path in found.directories],
            "metadata": found.metadata.as_dict() if found.metadata else None,
            "quorum": found.quorum.as_dict() if found.quorum else None,
            "repair": found.quorum.repair if found.quorum else None,
            "problems": found.problems,
        }
    )
    return FAILED if found.problems else DONE


def info_lines(found: object) -> list[str]:
    """Return the lines of `storage info`."""
    from kraftlab.config.storage import StorageInfo

    assert isinstance(found, StorageInfo)
    plural = "y" if len(found.directories) == 1 else "ies"
    lines = [f"Found log director{plural}:", *(f"  {path}" for path in found.directories), ""] if found.directories else []
    if found.metadata is not None:
        lines += [f"Found metadata: {_in_braces(found.metadata.as_dict())}", ""]
    if found.quorum is not None:
        lines += [f"Found quorum: {_in_braces(found.quorum.as_dict())}", ""]
        if found.quorum.repair is not None:
            lines += [f"Found repair: {found.quorum.repair}", ""]
    if found.problems:
        lines += [f"Found problem{'' if len(found.problems) == 1 else 's'}:", *(f"  {text}" for text in found.problems), ""]
    return lines


def _in_braces(values: dict[str, int | str]) -> str:
    return f"{{{', '.join(f'{name}={value}' for name, value in values.items())}}}"
