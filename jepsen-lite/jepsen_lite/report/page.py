"""The page of a run: `report/index.html` in the run's directory, with its style and scripts beside it.

It needs no network and no server: scripts and data are files, not modules or requests, which browsers refuse from disk. Text from
clients is only ever text: the template escapes it in HTML, and the data of the scripts are JSON without a "<". A policy in the
page forbids all other scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2
import markupsafe
import msgspec

from kraftlab.common import pages
from kraftlab.common.pages import replace_file
from kraftlab.common.sizes import bytes_text
from kraftlab.common.templates import template_of
from kraftlab.console.lanes import targets_of

from ..store import LEAST_RUN, PYTEST_WORKLOAD, SHRUNK, RunDirectory, RunRecord
from . import content, words
from .content import RunReport
from .curves import SLOWEST_BINS

PAGE = "index.html"
NAMED = 100
"""Operations in the table of those that checkers name."""
OUTCOMES = {"o": "ok", "f": "fail", "i": "info"}


def write_page(directory: RunDirectory) -> Path:
    """Build a run's page and return its path. StoreError, OSError."""
    text = render(content.gather(directory))
    write_assets(directory.report)
    return replace_file(directory.report / PAGE, text.encode())


def is_current(directory: RunDirectory) -> bool:
    """Return True if the page is newer than the run's record and its shrinking, and was written by this version."""
    sources = (directory.path / "run.json", directory.path / SHRUNK / LEAST_RUN)
    try:
        written = (directory.report / PAGE).stat().st_mtime_ns
        scripts = all((directory.report / name).read_bytes() == data for name, data in assets().items())
        return scripts and all(written >= source.stat().st_mtime_ns for source in sources if source.exists())
    except OSError:
        return False


def render(report: RunReport, *, is_served: bool = False) -> str:
    """Return the page as HTML; one that a console serves has a link to it. The same report gives the same text."""
    kinds = {kind: place % 8 for place, kind in enumerate(report.scene.kinds)}
    named = set(report.scene.named[:NAMED])
    return template("run.html.j2").render(
        report=report,
        is_served=is_served,
        word=words.word(report.verdicts),
        reason=words.reason(report.verdicts),
        lost=sum(verdict.lost for verdict in report.verdicts),
        texts=report.operations,
        named=[op for op in report.scene.ops if op.index in named],
        kinds=kinds,
        outcomes=OUTCOMES,
        options=_options(report.record),
        slowest_bins=SLOWEST_BINS,
        proves=words.PROVES,
        scene_json=script_data(report.scene),
    )


def _options(record: RunRecord) -> dict[str, object]:
    """Return the options of a run that had an effect. A pytest test has a cluster and clients of its own."""
    options: dict[str, object] = msgspec.to_builtins(record.options)
    return {name: options[name] for name in ("seed", "concurrency")} if record.workload == PYTEST_WORKLOAD else options


def script_data(value: object) -> markupsafe.Markup:
    """Return JSON that cannot end the element that contains it."""
    text = msgspec.json.encode(value).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return markupsafe.Markup(text)


def assets() -> Mapping[str, bytes]:
    """Return style and scripts by file name."""
    return {**pages.shared_assets(), **pages.assets_of(__package__)}


def write_assets(folder: Path) -> None:
    """Write the assets that are missing or different."""
    pages.write_assets(folder, assets())


@cache
def template(name: str) -> jinja2.Template:
    filters: dict[str, Callable[..., object]] = {
        "number": lambda value: f"{value:,}",
        "seconds": words.seconds,
        "moment": words.moment,
        "rate": words.rate,
        "size": bytes_text,
        "word": words.word_of,
        "validity": words.validity,
        "details": content.details,
        "targets": targets_of,
        "pretty": lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode(),
        "json": lambda value: msgspec.json.encode(value).decode(),
        "urlpath": quote,
        "ordinal": words.ordinal,
        "token": lambda text: "".join(letter for letter in text if letter.isascii() and letter.isalnum()),
    }
    return template_of(__package__, name, filters)
