"""Violations that a checker finds: all are counted, and the first of each kind are kept as examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..verdicts import UNKNOWN, Verdict

SHOWN_MAX = 10
"""Examples per kind."""


class Findings:
    """Violations by kind, in the order of discovery."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: list[dict[str, Any]] = []

    def add(self, kind: str, text: str, ops: Iterable[int] = ()) -> None:
        """`text` is a sentence without a full stop; `ops` are the indices of the operations concerned."""
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.examples.append({"kind": kind, "text": text, "ops": list(ops)})

    @property
    def reason(self) -> str:
        if not self.examples:
            return ""
        more = self.counts.total() - 1
        first: str = self.examples[0]["text"]
        return first + (f"; and {more} more" if more else "")

    @property
    def ops(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(index for example in self.examples for index in example["ops"]))

    def verdict(self, checker: str, *, checked: int, nothing: str, unsure: str = "", **others: Any) -> Verdict:
        """Return False if there is a violation; "unknown" with the reason `nothing` if nothing was checked, or with `unsure` if
        not everything could be checked. `others` are fields of Verdict; `details` are merged.
        """
        details = {"checked": checked, **others.pop("details", {})}
        if self.counts:
            details |= {"violations": dict(self.counts), "examples": self.examples}
            return Verdict(checker=checker, valid=False, reason=self.reason, ops=self.ops, details=details, **others)
        if not checked or unsure:
            reason = unsure if checked else nothing
            return Verdict(checker=checker, valid=UNKNOWN, reason=reason, details=details, **others)
        return Verdict(checker=checker, valid=True, details=details, **others)
