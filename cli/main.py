"""`kraftlab`: one command with Kafka's tools as subcommands.

A subcommand is loaded when it is called, and pays for no other's imports. The process of a node does not load click.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from kraftlab.common.exit_codes import DONE, FAILED, INTERRUPTED

if TYPE_CHECKING:
    import click

COMMANDS = {
    "demo": ("kraftlab.demo.command:demo", "Run the main scenario on data recorded from a real Kafka cluster."),
    "up": ("kraftlab.cli.lab.up:up", "Start a local cluster; Ctrl-C stops it."),
    "top": ("kraftlab.cli.top.command:top", "Show a cluster on one page of the terminal, live."),
    "console": ("kraftlab.cli.web.command:console", "Serve pages that show a cluster live, and change it."),
    "storage": ("kraftlab.cli.lab.storage_command:storage", "Format and inspect data directories, generate ids."),
    "topics": ("kraftlab.cli.topics.command:topics", "Create, list, describe, alter and delete topics."),
    "reassign-partitions": (
        "kraftlab.cli.reassign.command:reassign_partitions",
        "Move replicas between brokers and log directories.",
    ),
    "leader-election": (
        "kraftlab.cli.partitions.leader_election:leader_election",
        "Elect preferred leaders, or unclean leaders that may lack records.",
    ),
    "console-producer": ("kraftlab.cli.console.command:console_producer", "Write lines to a topic as records."),
    "console-consumer": ("kraftlab.cli.console.command:console_consumer", "Print the records of a topic."),
    "consumer-groups": (
        "kraftlab.cli.groups.command:consumer_groups",
        "List and describe consumer groups with their lag, reset and delete their offsets.",
    ),
    "exporter": (
        "kraftlab.cli.exporter.command:exporter",
        "Serve consumer lag and topics of a cluster to Prometheus.",
    ),
    "delete-records": ("kraftlab.cli.partitions.delete_records:delete_records", "Delete the oldest records of partitions."),
    "log-dirs": (
        "kraftlab.cli.partitions.log_dirs:log_dirs",
        "Show the log directories of brokers and their replicas; repair them.",
    ),
    "metadata-quorum": ("kraftlab.cli.quorum.command:metadata_quorum", "Show the metadata quorum, add and remove controllers."),
    "snapshot": ("kraftlab.cli.metadata.snapshot_command:snapshot", "Take, list and check snapshots of the metadata log."),
    "metadata": ("kraftlab.cli.metadata.command:metadata", "Show past metadata and its changes."),
    "metadata-shell": ("kraftlab.cli.metadata.shell_command:metadata_shell", "Browse the metadata."),
    "dump-log": ("kraftlab.cli.dump.command:dump_log", "Show log files batch by batch."),
    "cluster": (
        "kraftlab.cli.lab.cluster_command:cluster",
        "Show the cluster's id and members, unregister brokers, inject faults.",
    ),
    "configs": (
        "kraftlab.cli.configs.command:configs",
        "Show and change configs of topics, brokers, groups and client metrics, and quotas.",
    ),
    "features": ("kraftlab.cli.features.command:features", "Show, raise and lower the levels of features."),
    "acls": ("kraftlab.cli.security.acls_command:acls", "Add, remove and list access control lists (ACLs)."),
    "certificates": (
        "kraftlab.cli.certificates.command:certificates",
        "Create a certificate authority, issue and renew certificates of nodes and users.",
    ),
    "import": ("kraftlab.cli.partitions.import_command:import_segments", "Import captured segment files with their offsets."),
    "import-znode": ("kraftlab.cli.zookeeper.command:import_znode", "Import topics and reassignments from znodes."),
    "sim": ("kraftlab.cli.sim.command:sim", "Play seeds of the deterministic simulator."),
    "trace": ("kraftlab.cli.trace.command:trace", "Check traces of the quorum against its TLA+ specification."),
    "experiment": (
        "kraftlab.cli.experiment.command:experiment",
        "Measure the figures of published papers again.",
    ),
    "mutants": ("jepsen_lite.commands.mutants:mutants", "Plant known bugs, and check that each is found."),
    "pipeline": ("kraftlab.pipeline.command:pipeline", "Turn metadata logs into tables, audits and plans."),
    "chaos": ("jepsen_lite.command:chaos", "Run workloads against clusters under faults, and check every answer."),
    "completion": ("kraftlab.cli.completion.command:completion", "Print a shell's completion script."),
    "node": ("kraftlab.cli.lab.node_command:node", "Run a controller or a broker in the foreground."),
}
"""Command → ("module:attribute", short help). The module is loaded when the command is called, and not by `kraftlab --help`."""

COMPLETION = "_KRAFTLAB_COMPLETE"
"""Environment variable with which a shell asks for completions; the arguments are empty then."""
_EXPECTED = ("ClusterError", "ClusterUnreachable", "CorruptBatch")
"""Names of further errors that a user can act on, whose modules are not loaded for every command."""
OUT_OF_RANGE = "Value out of range: "
"""Beginning of protobuf's message about a number that a field cannot hold."""


def main() -> NoReturn:
    """Run the command line of this process, and end it with one of `common/exit_codes.py`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["node"] and not {"--help", "-h"} & set(arguments):
        from kraftlab.lab import node

        node.main(arguments[1:])
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # before the command is loaded
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: list[str] | None = None, command: click.Command | None = None, name: str = "kraftlab") -> int:
    """Run a command line, of `kraftlab` without a `command`, and return its exit code. Every failure is printed here, as one
    line with the next step.
    """
    import click

    from .command_groups import wrong_use
    from .output import CommandFailed, WrongUse, print_failure

    if COMPLETION in os.environ:
        from .completion import shells

        shells.register()
    elif command is None and not (sys.argv[1:] if arguments is None else arguments):
        from .start_page import page

        click.echo(page())
        return DONE
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = (command or build()).main(arguments, name, standalone_mode=False) or DONE
        sys.stdout.flush()
        return code
    except CommandFailed as error:
        failure = error
    except click.UsageError as error:
        failure = wrong_use(error, name)
    except click.ClickException as error:
        failure = CommandFailed(f"Error: {error.format_message()}")
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except Exception as error:
        text = known_failure(error)
        if text is None:
            raise
        failure = WrongUse(f"Error: {text}") if _is_wrong_use(error) else CommandFailed(f"Error: {text}")
    try:
        sys.stdout.flush()
        print_failure(failure, as_json)
    except OSError:
        _discard_stdout()
        click.echo(failure.text, err=True)
    return failure.exit_code


def _discard_stdout() -> None:
    """Point stdout at /dev/null: Python would report the output that it still holds when it exits."""
    from contextlib import suppress

    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def known_failure(error: Exception) -> str | None:
    """Return the text of an error that the user can act on, None for a bug."""
    import errno

    from kraftlab.common.errors import ApiError
    from kraftlab.config.errors import ConfigError
    from kraftlab.quorum.storage.errors import StorageError

    from .output import BadInput

    if isinstance(error, ApiError):
        return error.message or str(error)
    if isinstance(error, OSError) and error.filename is not None:
        is_of_the_system = error.errno is not None and error.strerror == os.strerror(error.errno)
        advice = "; check the path and its permissions" if is_of_the_system else ""
        return f"cannot use {error.filename}: {error.strerror}{advice}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"cannot write: {error.strerror}; make room there, or send the output elsewhere"
    if isinstance(error, ValueError) and (number := str(error).removeprefix(OUT_OF_RANGE)) != str(error):
        return f"{number} is out of range for this field; give a number closer to 0"
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{error.object!r} is not UTF-8; give names and texts in UTF-8"
    if isinstance(error, BadInput | ConfigError | StorageError) or any(
        kind.__name__ in _EXPECTED for kind in type(error).__mro__
    ):
        return str(error)
    return None


def _is_wrong_use(error: Exception) -> bool:
    """Return True if a value on the command line is at fault: a number or a text that no request can hold."""
    from .output import BadArgument

    return isinstance(error, BadArgument | UnicodeEncodeError) or str(error).startswith(OUT_OF_RANGE)


def build() -> click.Group:
    """Return the command with its subcommands, each of which is loaded on its first use."""
    import click

    from kraftlab import __version__

    from .command_groups import LazyGroup

    group = LazyGroup(
        "kraftlab",
        modules={name: module for name, (module, _) in COMMANDS.items()},
        short_helps={name: text for name, (_, text) in COMMANDS.items()},
        help="A KIP-500-style metadata quorum that you run on one machine, break on purpose, and study.",
        epilog="""\b
Examples:
  kraftlab up --controllers 3 --brokers 4 --log-dirs 2 --data /tmp/lab
  kraftlab topics --describe
  kraftlab COMMAND --help

\b
Exit codes: 0 done, 1 error or findings, 2 in progress or undecided, 64 wrong use, 70 missing on this machine, 130 ended by
Ctrl-C (docs/exit-codes.md).""",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    return click.version_option(__version__, prog_name="kraftlab")(group)


if __name__ == "__main__":
    main()
