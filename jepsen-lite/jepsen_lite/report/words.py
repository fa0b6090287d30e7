"""Texts of pages: verdicts, times, operations. Every text is plain; templates escape it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from ..history import FAIL, OK, Op
from ..verdicts import CRASH, LIVENESS, NOT_KNOWN, SAFETY, UNKNOWN, VALID, Verdict, ending

LONG = 120
"""Characters of a value that are shown."""

PROVES = {
    "stats": "each kind of operation succeeded at least once, so the other checkers had something to judge",
    "witness": "acknowledged writes are in the committed log once, refused ones are not, and reads are those of the log",
    "linearizable": "the operations of each key could have happened one at a time, in real time",
    "list-append": "an order of all transactions explains every list that was read",
    "set-full": "no element that was acknowledged or read is missing from a later read, and none was invented",
    "exactly-once": "each request took effect at most once, and all its attempts got one response",
    "logged reads": "each topic that a client saw was committed once, though perhaps long ago",
    "images agree": "each image of the metadata that a node reported is the one that the log gives at its offset",
    "replayed image": "the committed log can be replayed, and keeps the invariants of the metadata",
    "blocks": "no number was given out twice",
    "log-agreement": "an epoch had one leader, and neither epochs nor high watermarks fell",
    "node-crashes": "no node stopped by itself",
    "node-logs": "no node logged an exception or a broken invariant",
    "course": "no rule of the world broke, and the cluster was ready in time after the faults",
    "availability": "operations succeeded again soon after the last fault",
    "kept-records": "acknowledged records are there once, in their producer's order, or gave way by retention or compaction",
    "moved-data": "acknowledged records are at their offsets, once, and each broker has one current copy of each replica",
    "group-progress": "every record below the offsets that a group committed was polled, and no confirmed commit is lost",
    "lives of brokers": "in the log, epochs of brokers only rise, and no record has an epoch that is over",
    "lives of partitions": "in the log, replicas, in-sync sets and leaders change only as a reassignment and an election may",
    "lives of the quorum": "an epoch had one leader, elected by a majority, and voters changed one at a time",
    "lives of topics": "in the log, a topic id is created once, and its records lie between creation and removal",
}
"""Sentences about a valid verdict by checker. docs/chaos-checkers.md says what each checker does not see."""


class Word(NamedTuple):
    """A verdict as a word for filters, as words for people, as a mark, and as a colour."""

    name: str
    text: str
    mark: str
    look: str


NOT_JUDGED = Word("not judged", "not judged", "?", "unknown")
WORDS = {
    VALID: Word("valid", "valid", "✓", "good"),
    SAFETY: Word("safety", "safety violated", "✕", "bad"),
    CRASH: Word("crash", "a node crashed", "✕", "bad"),
    LIVENESS: Word("liveness", "liveness violated", "✕", "bad"),
    NOT_KNOWN: Word("unknown", "unknown", "?", "unknown"),
}


def word(verdicts: Sequence[Verdict]) -> Word:
    """Return the word for all verdicts together."""
    return WORDS[ending(verdicts)] if verdicts else NOT_JUDGED


def word_of(verdict: Verdict) -> Word:
    return word((verdict,))


def reason(verdicts: Sequence[Verdict]) -> str:
    """Return the reason of the deciding verdict."""
    if not verdicts:
        return "No checker has judged this run."
    decided = ending(verdicts)
    if decided == VALID:
        names = ", ".join(verdict.checker for verdict in verdicts)
        return f"All checkers passed: {names}."
    deciding = next(verdict for verdict in verdicts if ending((verdict,)) == decided)
    return f"{deciding.checker}: {deciding.reason}" if deciding.reason else f"{deciding.checker} gives no reason."


def short_reason(verdicts: Sequence[Verdict]) -> str:
    """Return `reason`, or for a valid run the number of checkers."""
    if not verdicts or ending(verdicts) != VALID:
        return reason(verdicts)
    return f"{len(verdicts)} checker{'' if len(verdicts) == 1 else 's'}"


def validity(verdict: Verdict) -> str:
    """Return the validity of one checker: "valid", "violated", "unknown"."""
    return "unknown" if verdict.valid == UNKNOWN else "valid" if verdict.valid else "violated"


def short_json(value: object, length: int = LONG) -> str:
    """Return the value as JSON, cut if it is long; a text without quotes."""
    return cut(value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode(), length)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def operation(op: Op, length: int = LONG, *, key: bool = True) -> str:
    """Return an operation as text: `set x 5`, `get x → 5`, `cas x [4,5] ✕ INVALID_REQUEST`, `set x 5 ? UNAVAILABLE`."""
    text = request(op, length, key=key)
    if op.outcome == OK:
        answered = short_json(op.result, length)
        return f"{text} → {answered}" if answered else text
    return f"{text} {'✕' if op.outcome == FAIL else '?'} {op.error}".rstrip()


def request(op: Op, length: int = LONG, *, key: bool = True) -> str:
    """Return the request of an operation as text, without its result: `set x 5`."""
    parts = (op.f, short_json(op.key, length) if key else "", short_json(op.value, length))
    return " ".join(part for part in parts if part)


def moment(at_ms: int) -> str:
    """Return a time in UTC, to the second; "–" for none."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if at_ms else "–"


def seconds(ns: float) -> str:
    """Return a duration: `0.4 ms`, `12 ms`, `3.42 s`, `2 min 5 s`."""
    ms = ns / 1e6
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1000:.2f} s"
    minutes, rest = divmod(round(ms / 1000), 60)
    return f"{minutes} min {rest} s"


def rate(per_second: float) -> str:
    return f"{per_second:,.1f}"


def ordinal(number: int) -> str:
    """Return an ordinal number: `2nd`, `11th`, `23rd`."""
    teens = 10 < number % 100 < 14
    return f"{number:,}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
