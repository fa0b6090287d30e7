"""The text that Prometheus scrapes (exposition format 0.0.4).

Every family stands in the catalogue, which has its type and its meaning: a name that is not there cannot be written. Ten thousand
partitions make a hundred thousand lines: a source with so many keeps their beginnings (`beginning`) and adds whole lines
(`extend`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from .catalogue import METRICS
from .histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """The samples of one scrape, by family."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, value: float, **labels: object) -> None:
        """Add one sample of the family `name`."""
        self.extend(name, [beginning(name, **labels) + number(value)])

    def extend(self, name: str, lines: Iterable[str]) -> None:
        """Add lines that were made elsewhere, one by one or joined. KeyError if the catalogue has no such family."""
        assert METRICS[name]
        self._lines.setdefault(name, []).extend(lines)

    def add_histogram(self, name: str, histogram: Histogram, **labels: object) -> None:
        """Add the samples of a histogram: they are cumulative, as Prometheus counts."""
        bounds = (*map(number, histogram.bounds), "+Inf")
        counts = list(accumulate(histogram.counts))
        lines = [f"{beginning(f'{name}_bucket', **labels, le=bound)}{count}" for bound, count in zip(bounds, counts, strict=True)]
        lines.append(f"{beginning(f'{name}_sum', **labels)}{number(histogram.total)}")
        lines.append(f"{beginning(f'{name}_count', **labels)}{counts[-1]}")
        self.extend(name, lines)

    def text(self) -> str:
        """Return the families by name, each with its meaning and type."""
        parts: list[str] = []
        for name in sorted(name for name, lines in self._lines.items() if lines):
            metric = METRICS[name]
            parts.append(f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind}")
            parts.extend(self._lines[name])
        parts.append("")
        return "\n".join(parts)


def beginning(name: str, **labels: object) -> str:
    """Return the beginning of a sample's line, up to its value."""
    if not labels:
        return f"{name} "
    pairs = ",".join(f'{key}="{escaped(str(value))}"' for key, value in labels.items())
    return f"{name}{{{pairs}}} "


def number(value: float) -> str:
    """Return a value as Prometheus reads it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def escaped(value: str) -> str:
    """Escape a label's value. What UTF-8 cannot hold becomes a question mark."""
    clean = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return clean.encode("utf-8", "replace").decode()
