"""The entry of a node's process: `kraftlab controller --config F`, `kraftlab broker --config F`.

Start time counts, since a cluster is seven of these: nothing is imported here that the node itself does not need, and the garbage
collector rests while modules load.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import threading
from typing import NoReturn

ROLES = ("controller", "broker")
_PATIENCE_S = 10.0


def main(arguments: list[str]) -> NoReturn:
    """Runs the node until it is stopped: exit code 0 after a graceful stop, 1 after a fatal error (one line says which)."""
    gc.disable()
    parser = argparse.ArgumentParser(
        prog="kraftlab",
        description="Runs one node in the foreground. SIGTERM or Ctrl-C stops it gracefully.",
        epilog="Format its directories first: kraftlab storage format --cluster-id ID --config server.properties",
    )
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--config", "-c", required=True, metavar="FILE", help="a Kafka-style server.properties")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when standard input ends (for supervisors)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if options.until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, name="stdin", daemon=True).start()
    sys.exit(_run(options.role, options.config))


def _run(role: str, path: str) -> int:
    import trio

    from kraftlab.config.errors import ConfigError
    from kraftlab.config.models import load_broker, load_controller

    try:
        if role == "controller":
            controller_config = load_controller(path)
            from kraftlab.controller.main import run as run_controller

            gc.enable()
            trio.run(run_controller, controller_config)
        else:
            broker_config = load_broker(path)
            from kraftlab.broker.main import run as run_broker

            gc.enable()
            trio.run(run_broker, broker_config)
    except ConfigError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _stop_when_stdin_closes() -> None:
    """The parent is gone: stop gracefully, or at least stop."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_PATIENCE_S)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
