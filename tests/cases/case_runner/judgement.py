"""Which differences from a recording are meant: rows for `differences.py`, and what a scenario's outcome is."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import paths
from .comparison import Mismatch
from .moves import Place
from .paths import Path
from .tolerance import SETS


class _Anything:
    def __repr__(self) -> str:
        return "anything"


ANYTHING: Any = _Anything()


@dataclass(frozen=True)
class Difference:
    """A field in which we differ on purpose. `scenario` may have wildcards (`*`), `path` is a pattern; what stands below it
    differs as well. `ours`: what we answer there, if that is always the same. `when`: only in steps like that. `fits`: only if
    what we answer at that place (None: it is not an answer) is what follows from the steps before.
    """

    scenario: str
    path: str
    reason: str
    ours: Any = ANYTHING
    when: Callable[[dict[str, Any]], bool] | None = None
    fits: Callable[[Place, Any], bool] | None = None


@dataclass(frozen=True)
class BetterText:
    """A message that says more than Kafka's, or is right where that is not. `recorded` and `ours` are regular expressions."""

    api: str
    recorded: str
    ours: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """One field of one step that is not as recorded, and not on purpose."""

    scenario: str
    step: int
    path: str
    expected: Any
    got: Any


@dataclass
class Outcome:
    """Of one scenario. `differences` and `texts` are those that were met."""

    scenario: str
    failures: list[Failure] = field(default_factory=list)
    differences: dict[tuple[str, str], str] = field(default_factory=dict)
    """(path, reason)s, in order."""
    texts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.failures:
            return "failed"
        return "differs_on_purpose" if self.differences else "passed"


class Judge:
    """Sorts mismatches of one scenario into those on purpose and those that are not."""

    def __init__(
        self,
        scenario: str,
        differences: Sequence[Difference],
        texts: Iterable[BetterText],
        steps: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._steps = steps
        self._differences = [(paths.parse(row.path), row) for row in differences if fnmatch.fnmatchcase(scenario, row.scenario)]
        self._texts = list(texts)

    def difference(self, path: Path, step: dict[str, Any], document: dict[str, Any]) -> Difference | None:
        """The row that makes what our answer says at a path a difference on purpose. `document` is {"steps": {index: …}}."""
        for pattern, row in self._differences:
            if row.when is not None and not row.when(step):
                continue
            for length in range(len(path) + 1):
                if paths.matches(pattern, path[:length]) and self._is_ours(row, path[:length], document):
                    return row
        return None

    def _is_ours(self, row: Difference, path: Path, document: dict[str, Any]) -> bool:
        if row.ours is ANYTHING and row.fits is None:
            return True
        value: Any = document
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

    def expects(self, path: Path, step: dict[str, Any]) -> bool:
        """Whether something is on purpose not as recorded there, whatever we answer."""
        return any(
            paths.covers(pattern, path)
            and (row.when is None or row.when(step))
            and (row.fits is None or row.fits(Place(self._steps, path), None))
            for pattern, row in self._differences
        )

    def text(self, api: str, mismatch: Mismatch) -> BetterText | None:
        """The row that makes a message's wording better than the recorded one."""
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


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What `--cases-report` writes."""
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
