"""`kraftlab`: one command with Kafka's tools as subcommands.

Subcommands are loaded when they are called, so that none pays for another's imports; a node's process loads no click at all.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

COMMANDS = {
    "up": ("up", "up"),
    "storage": ("storage_command", "storage"),
    "topics": ("topics_command", "topics"),
    "reassign-partitions": ("reassign_command", "reassign_partitions"),
    "leader-election": ("leader_election_command", "leader_election"),
    "console-producer": ("console_command", "console_producer"),
    "console-consumer": ("console_command", "console_consumer"),
    "delete-records": ("delete_records_command", "delete_records"),
    "log-dirs": ("log_dirs_command", "log_dirs"),
    "metadata-quorum": ("quorum_command", "metadata_quorum"),
    "snapshot": ("snapshot_command", "snapshot"),
    "metadata": ("metadata_command", "metadata"),
    "metadata-shell": ("shell_command", "metadata_shell"),
    "dump-log": ("dump_command", "dump_log"),
    "cluster": ("cluster_command", "cluster"),
    "configs": ("configs_command", "configs"),
    "features": ("features_command", "features"),
    "acls": ("acls_command", "acls"),
    "import": ("import_command", "import_segments"),
    "import-znode": ("znode_command", "import_znode"),
    "sim": ("sim_command", "sim"),
    "pipeline": (".pipeline.command", "pipeline"),
    "chaos": ("jepsen_lite.command", "chaos"),
    "completion": ("completion_command", "completion"),
    "controller": ("node_command", "controller"),
    "broker": ("node_command", "broker"),
}
"""Name → (module of this package, with a dot before it of the one around it, with one in it of its own; attribute)."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
OUT_OF_RANGE = "Value out of range: "
"""How protobuf begins what it says of a number that a field cannot hold."""


def main() -> NoReturn:
    """The entry point. Exit codes: 0 done, 1 error or usage, 2 still in progress, 130 after Ctrl-C; those of a group of commands
    that has its own otherwise."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["controller"], ["broker"]) and not {"--help", "-h"} & set(arguments):
        from kraftlab.cluster import node

        node.main(arguments)
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # while it is still being loaded
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code; every failure is printed here, as one line with the next step."""
    import click

    from .output import FAILED, CommandFailed, print_failure

    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = build().main(arguments, "kraftlab", standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except CommandFailed as error:
        failure = error
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return FAILED
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "kraftlab"
        failure = CommandFailed(f"Error: {error.format_message()}\nSee: {where} --help")
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
        failure = CommandFailed(f"Error: {text}")
    try:
        sys.stdout.flush()
        print_failure(failure, as_json)
    except OSError:
        _give_up_stdout()
        click.echo(failure.text, err=True)
    return failure.exit_code


def _give_up_stdout() -> None:
    """Nothing more can be written there: what Python still has for it is dropped, else it complains of that at its end."""
    import os
    from contextlib import suppress

    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def known_failure(error: Exception) -> str | None:
    """The text of an error that speaks for itself, None for a bug."""
    import errno

    from kraftlab.config.errors import ConfigError
    from kraftlab.metadata.errors import ApiError
    from kraftlab.quorum.storage.errors import StorageError

    if isinstance(error, ApiError):
        return error.message or str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; check the path and its permissions"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"cannot write: {error.strerror}; make room there, or send the output elsewhere"
    if isinstance(error, ValueError) and (number := str(error).removeprefix(OUT_OF_RANGE)) != str(error):
        return f"no request has room for {number}; give a number that is nearer to 0"
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{error.object!r} is not UTF-8; give names and texts in UTF-8"
    if isinstance(error, ConfigError | StorageError) or type(error).__name__ in ("ClusterError", "ClusterUnreachable"):
        return str(error)
    return None


def build() -> click.Group:
    """The command with its subcommands, each loaded when it is asked for."""
    import importlib

    import click

    from .groups import CommandGroup

    class LazyGroup(CommandGroup):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            module, attribute = COMMANDS[cmd_name]
            name = module if "." in module[1:] and not module.startswith(".") else f".{module}"
            command: click.Command = getattr(importlib.import_module(name, "kraftlab.cli"), attribute)
            return command

    from kraftlab import __version__

    group = LazyGroup(
        "kraftlab",
        help="A KIP-500-style metadata quorum that you run on one machine, break on purpose, and study.",
        epilog="""\b
Examples:
  kraftlab up --controllers 3 --brokers 4 --log-dirs 2 --data /tmp/lab
  kraftlab topics --bootstrap-server 127.0.0.1:21001 --describe
  kraftlab COMMAND --help

\b
Exit codes: 0 done, 1 error or usage, 2 still in progress, 130 ended by Ctrl-C. `chaos` and `pipeline` have their own: see
kraftlab chaos --help, kraftlab pipeline --help.""",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    return click.version_option(__version__, prog_name="kraftlab")(group)


if __name__ == "__main__":
    main()
