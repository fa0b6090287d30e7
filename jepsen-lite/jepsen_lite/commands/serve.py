"""`kraftlab chaos serve`: the runs of a store in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from kraftlab.cli.output import Output, json_option

from ..command import HarnessError, WrongUse
from ..store import DEFAULT_STORE, first_run


@click.command(
    "serve",
    short_help="Serve the pages of a store to a browser.",
    epilog="""\b
Examples:
  kraftlab chaos serve
  kraftlab chaos serve --store /tmp/runs --port 9000
  kraftlab chaos serve --port 0 --json      # print the address in one line""",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8091, show_default=True, help="Port on 127.0.0.1; 0: any free port."
)
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    help="Directory in which runs are stored.",
)
@json_option
def serve(port: int, store: str, as_json: bool) -> None:
    """Serve the index of a store and the pages of its runs, on this machine only, until Ctrl-C.

    Pages are built when they are opened. A run appears in the index when it is done.
    """
    from ..report.server import StoreServer

    place = Path(store)
    if not place.is_dir():
        raise WrongUse(f"there is no directory {store}; make a run with: {first_run(store)}")
    try:
        server = StoreServer(place, port)
    except OSError as error:
        raise HarnessError(f"cannot listen on port {port}: {error.strerror}; choose another with --port") from error
    with server:
        output = Output(as_json)
        output.lines([f"{server.url} serves the runs of {store}; Ctrl-C ends"])
        output.result({"url": server.url, "store": store})
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output.lines(["ended"])
