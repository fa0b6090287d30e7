"""A recorded answer and ours, field by field.

Only fields of the recording are compared. Placeholders of the recording match our values: `{topic_id:NAME}` our id of the topic
NAME, `{member:N}` our id of a group's member, `{controller}` and `{request}` in messages any node id and any text. A number in
the place of a list is its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kraftlab.common.errors import ErrorCode

from . import paths
from .mapping import is_uuid, long_id
from .paths import Path, Value
from .tolerance import Holder, Tolerance

ABSENT = "(absent)"
_COUNT = re.compile(r"(\d+) [a-z_ ]+")
_OWN_ID = re.compile(r"\{(topic_id|member):[^}]*\}")
_PLACEHOLDER = re.compile(r"(\{(?:controller|request|topic_id:[^}]*|member:[^}]*)\})")
_TOPIC_ID_LENGTH = 22


@dataclass(frozen=True)
class Mismatch:
    """One field that differs from the recording. `is_wording`: both are texts of messages."""

    path: Path
    expected: Value
    got: Value
    is_wording: bool = False


class Placeholders:
    """Our values of a recording's placeholders `{topic_id:NAME}` and `{member:N}`."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def learn(self, placeholder: str, value: str) -> None:
        """Note our value of a placeholder."""
        self._values[placeholder] = value

    def get(self, placeholder: str) -> str | None:
        return self._values.get(placeholder)

    def is_it(self, placeholder: str, value: object) -> bool:
        """Return whether a text is our value of a placeholder. The first fitting text counts as it."""
        fits = len(value) == _TOPIC_ID_LENGTH or not is_topic_id(placeholder) if isinstance(value, str) else False
        return bool(fits and value) and self._values.setdefault(placeholder, str(value)) == value


def topic_id_of(topic: str) -> str:
    """Return the placeholder of a topic's id."""
    return f"{{topic_id:{topic}}}"


def is_topic_id(placeholder: str) -> bool:
    return placeholder.startswith("{topic_id:")


def is_member(value: object) -> bool:
    """Return whether a recorded value stands for the id of a group's member, which is random and yet the same at all places."""
    return isinstance(value, str) and value.startswith("{member:") and is_placeholder(value)


def is_placeholder(value: object) -> bool:
    """Return whether a recorded value stands for an id of ours."""
    return isinstance(value, str) and _OWN_ID.fullmatch(value) is not None


class Comparison:
    """Comparison of answers of one call in one document."""

    def __init__(self, api: str, tolerance: Tolerance, placeholders: Placeholders) -> None:
        self._api = api
        self._tolerance = tolerance
        self._placeholders = placeholders

    def mismatches(self, expected: Value, got: Value, path: Path) -> list[Mismatch]:
        return list(self._compare(expected, got, path, None))

    def _compare(self, expected: Value, got: Value, path: Path, holder: Holder | None) -> Iterator[Mismatch]:
        if not is_member(expected) and self._tolerance.skips(path, self._api, holder):
            return
        if isinstance(expected, dict):
            yield from self._compare_objects(expected, got, path)
        elif isinstance(expected, list):
            yield from self._compare_lists(expected, got, path, holder)
        elif isinstance(got, list) and isinstance(expected, int):
            if len(got) != expected:
                yield Mismatch(path, f"{expected} elements", f"{len(got)} elements")
        elif not self._is_same(expected, got, path):
            is_wording = str(path[-1]).endswith("error_message") and bool(expected) and bool(got) and got is not ABSENT
            if not (is_wording and self._tolerance.is_text_free(path, self._api)):
                yield Mismatch(path, expected, got, is_wording)

    def _compare_objects(self, expected: dict[str, Value], got: Value, path: Path) -> Iterator[Mismatch]:
        if not isinstance(got, dict):
            yield Mismatch(path, expected, got)
            return
        for name, value in expected.items():
            if f"{name}_code" in expected and name.endswith("error"):
                yield from self._compare_names(value, got.get(f"{name}_code"), expected[f"{name}_code"], (*path, name))
            elif name not in self._tolerance.names or is_placeholder(value):
                yield from self._compare(value, got.get(name, ABSENT), (*path, name), expected)

    def _compare_names(self, expected: str, code: object, expected_code: object, path: Path) -> Iterator[Mismatch]:
        """Compare our name of an equal code with the recorded name."""
        if code == expected_code and isinstance(code, int):
            try:
                name = ErrorCode(code).name
            except ValueError:
                name = f"unknown code {code}"
            if name != expected and not self._tolerance.skips(path, self._api, None):
                yield Mismatch(path, expected, name)

    def _compare_lists(self, expected: list[Value], got: Value, path: Path, holder: Holder | None) -> Iterator[Mismatch]:
        if not isinstance(got, list):
            yield Mismatch(path, expected, got)
            return
        count = _COUNT.fullmatch(expected[0]) if len(expected) == 1 and isinstance(expected[0], str) else None
        if count is not None and not (got and isinstance(got[0], str)):
            expected_length = int(count[1])
            if len(got) != expected_length:
                yield Mismatch(path, f"{expected_length} elements", f"{len(got)} elements")
            return
        if self._tolerance.is_length_only(path, self._api, holder):
            if len(got) != len(expected):
                yield Mismatch(path, expected, got)
            return
        if self._tolerance.is_unordered(path, self._api):
            got = self._arranged(expected, got, path)
        if len(got) != len(expected):
            yield Mismatch(path, expected, got)
            return
        for index, (wanted, found) in enumerate(zip(expected, got, strict=True)):
            yield from self._compare(wanted, found, (*path, index), None)

    def _arranged(self, expected: list[Value], got: list[Value], path: Path) -> list[Value]:
        """Return our elements in the order of the most similar recorded elements."""
        left = list(got)
        arranged = []
        for index, wanted in enumerate(expected):
            if not left:
                break
            faults = [sum(1 for _ in self._compare(wanted, found, (*path, index), None)) for found in left]
            arranged.append(left.pop(faults.index(min(faults))))
        return arranged + left

    def _is_same(self, expected: Value, got: Value, path: Path) -> bool:
        if isinstance(expected, str) and isinstance(got, str):
            return self._is_same_text(expected, got)
        if isinstance(expected, bool) or isinstance(got, bool):
            return expected is got
        return bool(expected == got)

    def _is_same_text(self, expected: str, got: str) -> bool:
        if is_placeholder(expected):
            return self._placeholders.is_it(expected, got)
        if expected == got:
            return True
        if is_uuid(expected):
            return long_id(got) == expected
        if _PLACEHOLDER.search(expected) is None:
            return False
        return re.fullmatch(self._pattern(expected), got, re.DOTALL) is not None

    def _pattern(self, expected: str) -> str:
        return "".join(self._piece(piece) for piece in _PLACEHOLDER.split(expected))

    def _piece(self, piece: str) -> str:
        if piece == "{controller}":
            return r"\d+"
        if piece == "{request}":
            return r".+"
        return re.escape(self._placeholders.get(piece) or piece)


def describe(mismatch: Mismatch) -> str:
    """Return one line about a mismatch."""
    return f"{paths.write(mismatch.path)}: recorded {mismatch.expected!r}, got {mismatch.got!r}"
