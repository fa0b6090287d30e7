"""Results of the demo: checks and times, as a table for people or as one JSON report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table


class Check(msgspec.Struct, frozen=True):
    """One check, and the observation."""

    name: str
    ok: bool
    detail: str


class StoryReport:
    """Collects checks and times during the story, and prints them. In JSON mode stdout gets one report, at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.checks: list[Check] = []
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()
        self.console = Console(stderr=as_json, highlight=False)
        self.console.quiet = as_json

    def print(self, text: str) -> None:
        self.console.print(text)

    def chapter(self, number: int, text: str) -> None:
        self.console.print(f"\n[bold cyan]{number}[/] [bold]{text}[/]")

    def check(self, name: str, ok: bool, detail: str) -> bool:
        self.checks.append(Check(name, ok, detail))
        self.console.print(f"  {'[green]✓[/]' if ok else '[bold red]✗[/]'} {name}: {detail}")
        return ok

    def took(self, name: str, seconds: float) -> None:
        self.seconds[name] = round(seconds, 3)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show bars for long work; invisible in JSON mode."""
        columns = (
            SpinnerColumn(),
            TextColumn("  {task.description:<28}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>4.0f} %"),
            DownloadColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, disable=self.as_json, transient=False) as progress:
            yield progress

    def finish(self) -> None:
        """Print the results: a table, or the one JSON document."""
        self.took("total", time.monotonic() - self._started)
        if self.as_json:
            checks = [msgspec.to_builtins(check) for check in self.checks]
            sys.stdout.write(json.dumps({"ok": self.ok, "checks": checks, "seconds": self.seconds}) + "\n")
            sys.stdout.flush()
            return
        table = Table(title="\nchecks", title_justify="left")
        for column in ("", "check", "observation"):
            table.add_column(column)
        for check in self.checks:
            table.add_row("[green]✓[/]" if check.ok else "[bold red]✗[/]", check.name, check.detail)
        self.console.print(table)
        self.console.print("  ".join(f"{name} {seconds:.2f} s" for name, seconds in self.seconds.items()))
        held = sum(check.ok for check in self.checks)
        colour = "green" if self.ok else "red"
        self.console.print(f"[bold {colour}]{held} of {len(self.checks)} checks hold[/]")


def add_bar(progress: Progress, description: str, total: float) -> TaskID:
    """Add a bar of `total` units with room for a note (rate, ETA)."""
    return progress.add_task(description, total=max(total, 1), note="")
