"""`kraftlab top`: a cluster on one page of a terminal, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..connection import connect, endpoint_options
from ..output import Output, WrongUse, json_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

    from .look import Look, Overview

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
ONCE_S = 1.0
"""Time between the two looks of --once: rates need two."""
PLAIN_HEIGHT = 1000


@click.command(
    "top",
    epilog="""\b
Examples:
  kraftlab top
  kraftlab top --interval 5 --sort size
  kraftlab top --once --json | jq '.brokers[] | {broker_id, state}'

\b
Keys: q quit, p pause and go on, s next order of topics, + and - longer and shorter interval.""",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="Time between looks.",
)
@click.option("--sort", type=click.Choice(("rate", "size", "name")), default="rate", help="Order of topics.")
@click.option("--once", is_flag=True, help="Print one page and end.")
@endpoint_options
@json_option
def top(interval_s: float, sort: str, once: bool, as_json: bool) -> int:
    """Show a cluster on one page, live: quorum, brokers with their log directories, moves, busiest topics.

    What topics write is seen by their logs: bytes and records per second, without replicas. Exit code with --once: 1 if the
    cluster does not answer.
    """
    if as_json and not once:
        raise WrongUse("Error: --json needs --once; for a live page leave --json out")
    if not once and not sys.stdout.isatty():
        raise WrongUse("Error: a live page needs a terminal; add --once for one page")
    if once:
        return _print_once(sort, as_json)
    with connect() as client:
        _Live(client, interval_s, sort).run()
    return DONE


def _print_once(sort: str, as_json: bool) -> int:
    from rich.console import Console

    from .look import look, overview
    from .page import Page

    with connect() as client:
        before = look(client)
        time.sleep(ONCE_S)
        found = overview(look(client), before)
    if as_json:
        Output(as_json).result(found)
    else:
        page = Page(found, PLAIN_HEIGHT, sort, ONCE_S, has_keys=False)
        Console(highlight=False).print(page.render())
    return DONE if found.cluster_id else FAILED


class _Live:
    """A page that is drawn again with each look and each key."""

    def __init__(self, client: AdminClient, interval_s: float, sort: str) -> None:
        self._client = client
        self._interval_s = interval_s
        self._sort = sort
        self._is_paused = False
        self._looks: list[Look] = []
        """The newest look, and the one before it."""

    def run(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from .keys import key_within, single_keys
        from .look import look
        from .page import Page

        console = Console(highlight=False)

        def page() -> Page:
            return Page(self._overview(), console.height, self._sort, self._interval_s, is_paused=self._is_paused)

        with single_keys(), Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                if not self._is_paused:
                    self._looks = [*self._looks[-1:], look(self._client)]
                next_s = time.monotonic() + self._interval_s
                while (left_s := next_s - time.monotonic()) > 0:
                    live.update(page().render(), refresh=True)
                    key = key_within(left_s)
                    if key in ("q", "\x1b", "\x04"):
                        return
                    self._pressed(key)

    def _overview(self) -> Overview:
        from .look import overview

        return overview(self._looks[-1], self._looks[0] if len(self._looks) > 1 else None)

    def _pressed(self, key: str) -> None:
        from .page import SORTS

        orders = [*SORTS]
        if key == "p":
            self._is_paused = not self._is_paused
        elif key == "s":
            self._sort = orders[(orders.index(self._sort) + 1) % len(orders)]
        elif key == "+":
            self._interval_s = next((each for each in INTERVALS_S if each > self._interval_s), self._interval_s)
        elif key == "-":
            self._interval_s = next((each for each in reversed(INTERVALS_S) if each < self._interval_s), self._interval_s)
