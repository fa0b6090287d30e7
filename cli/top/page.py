"""The page of `kraftlab top`, as large as its terminal: pure functions from an overview to lines of rich."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kraftlab.common.sizes import bytes_text

from ..tables import time_text, utc_text
from .look import BrokerRow, DirectoryRow, Overview, TopicRow

SORTS: dict[str, Callable[[TopicRow], tuple[float, float, str]]] = {
    "rate": lambda row: (-(row.bytes_per_second or 0), -row.size_bytes, row.name),
    "size": lambda row: (-row.size_bytes, 0, row.name),
    "name": lambda row: (0, 0, row.name),
}
KEYS = "q quit   p pause   s sort   + - interval"
PATH_PARTS = 2
"""The last parts of the path of a log directory; the page has no room for more."""
LEAST_ROWS = 2
"""Rows that a part gets on a small terminal, beside its header."""
STYLES = {"active": "green", "online": "green", "fenced": "red", "offline": "red", "silent": "red"}


class Page:
    """Lays out an overview. `height` is in lines; every part has a line that counts the rows left out."""

    def __init__(
        self, found: Overview, height: int, sort: str, interval_s: float, *, is_paused: bool = False, has_keys: bool = True
    ) -> None:
        self._found = found
        self._height = height
        self._sort = sort
        self._interval_s = interval_s
        self._is_paused = is_paused
        self._has_keys = has_keys

    def render(self) -> RenderableType:
        """Return the whole page."""
        head = [*self._head(), *self._findings()]
        parts = (
            (("voter", "state", "behind", "silent"), "lrrr", self._voters()),
            (("broker", "state", "silent", "leads", "replicas", "log directory", "used", "free"), "lrrrrlrr", self._brokers()),
            (("move", "from → to", "done", "left", "rate", "eta", "waits for"), "llrrrrl", self._moves()),
            ((f"topic (by {self._sort})", "partitions", "size", "written", "records"), "lrrrr", self._topics()),
        )
        shown = [part for part in parts if part[2]]
        room = shares([len(rows) for _, _, rows in shown], self._height - len(head) - 2 * len(shown) - 1)
        tables = [_table(header, sides, rows, most) for (header, sides, rows), most in zip(shown, room, strict=True)]
        foot = [Text(f"{KEYS}   every {self._interval_s:g} s", style="dim", no_wrap=True)] if self._has_keys else []
        return Group(*head, *tables, *foot)

    def _head(self) -> Iterable[Text]:
        found = self._found
        leader = "no leader" if found.leader_id is None else f"leader {found.leader_id}, epoch {found.leader_epoch}"
        rate = "" if found.commits_per_second is None else f", {found.commits_per_second:.0f} records/s"
        paused = "   paused" if self._is_paused else ""
        yield Text(
            f"{found.cluster_id or 'no answer'}   {utc_text(found.wall_ms)[11:19]} UTC{paused}", style="bold", no_wrap=True
        )
        offset = "?" if found.high_watermark is None else found.high_watermark
        line = f"{leader}   committed {offset}{rate}   observers {found.observers}   queued moves {found.queued_moves}"
        yield Text(line, style="" if found.leader_id is not None else "red", no_wrap=True, overflow="ellipsis")

    def _findings(self) -> Iterable[Text]:
        lines = [*(finding.text for finding in self._found.findings), *self._found.faults]
        most = max(1, self._height // 8)
        for line in lines[:most]:
            yield Text(line, style="red", no_wrap=True, overflow="ellipsis")
        if len(lines) > most:
            yield Text(f"and {len(lines) - most} more: kraftlab cluster health", style="red", no_wrap=True)

    def _voters(self) -> list[list[str]]:
        return [
            [
                str(voter.voter_id),
                "leader" if voter.is_leader else "follower",
                "?" if voter.lag is None else str(voter.lag),
                "" if voter.is_leader else time_text(voter.silent_ms),
            ]
            for voter in self._found.voters
        ]

    def _brokers(self) -> list[list[str]]:
        in_order = sorted(self._found.brokers, key=lambda broker: broker.state == "active")  # what needs a look comes first
        return [row for broker in in_order for row in _broker_rows(broker)]

    def _moves(self) -> list[list[str]]:
        return [
            [
                move.partition,
                move.path,
                bytes_text(move.bytes_done),
                bytes_text(move.bytes_left),
                f"{bytes_text(move.bytes_per_second)}/s",
                time_text(move.eta_ms),
                move.waits_for,
            ]
            for move in self._found.moves
        ]

    def _topics(self) -> list[list[str]]:
        return [
            [
                topic.name,
                str(topic.partitions),
                bytes_text(topic.size_bytes),
                "" if topic.bytes_per_second is None else f"{bytes_text(topic.bytes_per_second)}/s",
                "" if topic.records_per_second is None else f"{topic.records_per_second:.0f}/s",
            ]
            for topic in sorted(self._found.topics, key=SORTS[self._sort])
        ]


def _broker_rows(broker: BrokerRow) -> Iterable[list[str]]:
    """Return a broker's lines: one per log directory, the first with its own numbers."""
    own = [str(broker.broker_id), broker.state, time_text(broker.silent_ms), str(broker.leads), str(broker.replicas)]
    for index, directory in enumerate(broker.log_dirs or (None,)):
        yield [*(own if index == 0 else [""] * len(own)), *_directory_cells(directory)]


def _directory_cells(directory: DirectoryRow | None) -> list[str]:
    if directory is None:
        return ["", "", ""]
    path = "/".join(PurePosixPath(directory.log_dir).parts[-PATH_PARTS:])
    if directory.state == "offline":
        return [path, "offline", ""]
    free = ""
    if directory.usable_bytes is not None and directory.total_bytes:
        free = f"{100 * directory.usable_bytes / directory.total_bytes:.0f} %"
    return [path, bytes_text(directory.used_bytes), free]


def shares(wanted: Sequence[int], lines: int) -> list[int]:
    """Divide lines among parts that want so many rows: each gets LEAST_ROWS, or what it wants; the rest goes in turn."""
    given = [min(want, LEAST_ROWS) for want in wanted]
    left = lines - sum(given)
    while left > 0 and given != list(wanted):
        for at, want in enumerate(wanted):
            if left > 0 and given[at] < want:
                given[at] += 1
                left -= 1
    return given


def _table(header: Sequence[str], sides: str, rows: Sequence[Sequence[str]], most: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan", expand=False)
    for name, side in zip(header, sides, strict=True):
        # rich narrows the columns that may wrap and no others: a number is never cut. Their cells do not wrap either.
        title, is_number = Text(name, no_wrap=True, overflow="ellipsis"), side == "r"
        table.add_column(title, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows[:most]:
        table.add_row(*(Text(cell, style=STYLES.get(cell, ""), no_wrap=True, overflow="ellipsis") for cell in row))
    left = len(rows) - most
    table.add_row(Text(f"… {left} more" if left > 0 else "", style="dim", no_wrap=True, overflow="ellipsis"))
    return table
