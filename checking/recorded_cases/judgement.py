"""Intended differences from recordings: rows for `differences.py`, and the outcome of a scenario."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from . import paths
from .comparison import Mismatch
from .moves import Place
from .paths import Path, Value
from .tolerance import SETS


class _Anything:
    def __repr__(self) -> str:
        return "anything"


ANYTHING: Value = _Anything()


@dataclass(frozen=True)
class Difference:
    """A field in which we differ on purpose. `scenario` may have wildcards (`*`). `path` is a pattern and includes the fields
    below it. `ours`: our constant answer. `when`: a condition on the step. `fits`: a condition on our answer at that place (None
    outside answers), computed from earlier steps.
    """

    scenario: str
    path: str
    reason: str
    ours: Value = ANYTHING
    when: Callable[[dict[str, Value]], bool] | None = None
    fits: Callable[[Place, Value], bool] | None = None


@dataclass(frozen=True)
class BetterText:
    """A message that is more precise than Kafka's, or corrects it. `recorded` and `ours` are regular expressions."""

    api: str
    recorded: str
    ours: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """One field of one step that differs from the recording without intention."""

    scenario: str
    step: int
    path: str
    expected: Value
    got: Value


@dataclass
class Outcome:
    """Outcome of one scenario, with the `differences` and `texts` that occurred."""

    scenario: str
    failures: list[Failure] = field(default_factory=list)
    differences: dict[tuple[str, str], str] = field(default_factory=dict)
    """(path, reason) pairs in order."""
    texts: list[dict[str, Value]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.failures:
            return "failed"
        return "differs_on_purpose" if self.differences else "passed"


class Judge:
    """Judge of the mismatches of one scenario: intended or not."""

    def __init__(
        self,
        scenario: str,
        differences: Sequence[Difference],
        texts: Iterable[BetterText],
        steps: Sequence[dict[str, Value]] = (),
    ) -> None:
        self._steps = steps
        self._differences = [(paths.parse(row.path), row) for row in differences if fnmatch.fnmatchcase(scenario, row.scenario)]
        self._texts = list(texts)

    def difference(self, path: Path, step: dict[str, Value], document: dict[str, Value]) -> Difference | None:
        """Return the row that intends the difference of our answer at a path. `document` is {"steps": {index: …}}."""
        for pattern, row in self._differences:
            if row.when is not None and not row.when(step):
                continue
            for length in range(len(path) + 1):
                if paths.matches(pattern, path[:length]) and self._is_ours(row, path[:length], document):
                    return row
        return None

    def _is_ours(self, row: Difference, path: Path, document: dict[str, Value]) -> bool:
        if row.ours is ANYTHING and row.fits is None:
            return True
        value: Value = document
        try:
            for part in path:
                value = value[part]
        except (LookupError, TypeError):
            return False
        if row.fits is not None and not row.fits(Place(self._steps, path), value):
            return False
        if row.ours is ANYTHING:
            return True
        if path[-1] in SETS and isinstance(value, list):
            return sorted(value) == sorted(row.ours)
        return bool(value == row.ours)

    def expects(self, path: Path, step: dict[str, Value]) -> bool:
        """Return whether a row intends a difference at a path for every answer."""
        return any(
            paths.covers(pattern, path)
            and (row.when is None or row.when(step))
            and (row.fits is None or row.fits(Place(self._steps, path), None))
            for pattern, row in self._differences
        )

    def text(self, api: str, mismatch: Mismatch) -> BetterText | None:
        """Return the row that prefers our wording of a message."""
        if not mismatch.is_wording:
            return None
        for row in self._texts:
            if (
                row.api in (api, "*")
                and re.fullmatch(row.recorded, mismatch.expected, re.DOTALL)
                and re.fullmatch(row.ours, mismatch.got, re.DOTALL)
            ):
                return row
        return None


def report(outcomes: Sequence[Outcome]) -> dict[str, Value]:
    """Return the report of `--cases-report`."""
    verdicts = [outcome.verdict for outcome in outcomes]
    return {
        "passed": verdicts.count("passed"),
        "differs_on_purpose": verdicts.count("differs_on_purpose"),
        "failed": [
            {
                "scenario": failure.scenario,
                "step": failure.step,
                "path": failure.path,
                "expected": failure.expected,
                "got": failure.got,
            }
            for outcome in outcomes
            for failure in outcome.failures
        ],
        "differences": [
            {"scenario": outcome.scenario, "path": path, "reason": reason}
            for outcome in outcomes
            for path, reason in outcome.differences
        ],
        "texts": [text for outcome in outcomes for text in outcome.texts],
        "notes": [{"scenario": outcome.scenario, "note": note} for outcome in outcomes for note in outcome.notes],
    }
