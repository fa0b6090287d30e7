"""Progress of long commands on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import click

Result = TypeVar("Result")
QUIET_LINE_S = 10.0
"""Interval of progress lines without a terminal."""


def progress(results: Iterable[Result], total: int, describe: Callable[[Result], str]) -> Iterator[Result]:
    """Yield the results in order, and show the progress on stderr: a bar on a terminal, otherwise occasional lines.

    `describe` returns the text beside the bar from the newest result, after the caller has used that result.
    """
    if sys.stderr.isatty():
        yield from _bar(results, total, describe)
        return
    begun = shown = time.perf_counter()
    for number, result in enumerate(results, start=1):
        yield result
        if number < total and time.perf_counter() - shown >= QUIET_LINE_S:
            shown = time.perf_counter()
            left_s = (shown - begun) / number * (total - number)
            click.echo(f"{number:,} of {total:,}, about {left_s:.0f} s left: {describe(result)}", err=True)


def _bar(results: Iterable[Result], total: int, describe: Callable[[Result], str]) -> Iterator[Result]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        for result in results:
            yield result
            bar.update(task, advance=1, description=describe(result))
