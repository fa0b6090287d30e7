"""A node's process: `kraftlab node --config server.properties`, `kraftlab node --environment`.

Start time counts, since a cluster starts seven nodes: only modules of the node itself are imported, and the garbage collector is
off meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from kraftlab.common.exit_codes import DONE, FAILED, USAGE

if TYPE_CHECKING:
    from trio.abc import Clock

    from kraftlab.config.models import NodeConfig

ROLES = ("controller", "broker")
_PATIENCE_S = 10.0


def main(arguments: list[str]) -> NoReturn:
    """Run the node until it is stopped: DONE after a graceful stop, FAILED after a fatal error (printed as one line)."""
    parser = _ArgumentParser(prog="kraftlab node")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", "-c", metavar="FILE")
    source.add_argument("--environment", action="store_true")
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args(arguments)
    keep_files_private()
    gc.disable()
    from kraftlab.config.models import load_any

    if options.environment:
        from kraftlab.config import combined_roles, environment

        if combined_roles.are_in(os.environ):
            from . import combined_roles as two_nodes

            sys.exit(two_nodes.run(os.environ))
        read, prepare = partial(environment.load, os.environ), partial(environment.prepare, os.environ)
        sys.exit(run(read, prepare, until_stdin_closes=options.until_stdin_closes))
    sys.exit(run(partial(load_any, options.config), until_stdin_closes=options.until_stdin_closes))


def keep_files_private() -> None:
    """Let nobody but this process's user into files and directories that it will make. Snapshots, logs and traces can hold
    secrets, and records belong to their owners. What exists keeps its mode.
    """
    os.umask(0o077)


class _ArgumentParser(argparse.ArgumentParser):
    """Prints usage errors, and ends, like every other command; argparse's own exit code means 'unfinished' here."""

    def error(self, message: str) -> NoReturn:
        print(f"Error: {message}\nSee: {self.prog} --help", file=sys.stderr)
        sys.exit(USAGE)


def load(role: str) -> Callable[[Any], Awaitable[None]]:
    """Import a role's code; return the function that runs it."""
    if role == "controller":
        from kraftlab.controller.main import run as run_controller

        return run_controller
    from kraftlab.broker.main import run as run_broker

    return run_broker


def run(
    read: Callable[[], NodeConfig],
    prepare: Callable[[NodeConfig], None] = lambda config: None,
    *,
    until_stdin_closes: bool,
    clock_file: str = "",
    introduction: bytes = b"",
) -> int:
    """Run a node in this process and return its exit code; a fatal error is printed as one line. `read` returns its
    configuration. `prepare` comes next, when the log is open. Both may raise ConfigError. With a `clock_file` the node uses the
    clock in that file (steered_clock.py). Connections to other nodes begin with the introduction.
    """
    import trio

    from kraftlab.config.errors import ConfigError
    from kraftlab.config.private_files import warn_of_readable_secrets
    from kraftlab.node import log_lines
    from kraftlab.wire.network import TCP

    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, name="stdin", daemon=True).start()
    TCP.introduction = introduction
    end_with: Callable[[str], None] = log_lines.print_error
    try:
        config = read()
        end_with = log_lines.begin(config)
        prepare(config)
        warn_of_readable_secrets(config.source, config.metadata_log_dir)
        run_node = load(config.process_roles[0])
        gc.enable()
        trio.run(run_node, config, clock=_clock(clock_file))
    except ConfigError as error:
        end_with(f"Error: {error}")
        return FAILED
    except SystemExit as error:
        if isinstance(error.code, str):
            end_with(error.code)
            return FAILED
        return error.code or DONE
    except OSError as error:
        if error.filename is None:
            raise
        end_with(f"Error: cannot use {error.filename}: {error.strerror}; check the path and its permissions")
        return FAILED
    except KeyboardInterrupt:
        return DONE
    return DONE


def _clock(file: str) -> Clock | None:
    """The clock in the file; None: this machine's."""
    if not file:
        return None
    from .steered_clock import SteeredClock

    return SteeredClock(file)


def _stop_when_stdin_closes() -> None:
    """Stop gracefully when the parent ends, or at least stop."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_PATIENCE_S)
    os._exit(FAILED)


if __name__ == "__main__":
    main(sys.argv[1:])
