"""`trimmed`: cuts and sorts that a recording applied to an answer, applied to our answer too.

Known forms: `LIST removed`; `LIST: number only` (visible in the recorded value); `LIST: only KEY N`; `LIST: only the topics of
this scenario`; `topics of others removed`; `LIST: only those with FIELD != N`; `LISTS sorted …`, which makes their order
meaningless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from . import paths
from .paths import ANY_DEPTH, Path, Value
from .tolerance import Rule, Tolerance

_RESPONSE = "response."
_REMOVED = re.compile(r"(?P<list>[\w.\[\]*]+) removed")
_ONLY_ONE = re.compile(r"(?P<list>[\w.\[\]*]+): only (?P<key>\w+) (?P<id>\d+)")
_ONLY_UNLIKE = re.compile(r"(?P<list>[\w.\[\]*]+): only those with (?P<field>\w+) != (?P<value>\S+).*")
_OWN_TOPICS = re.compile(r"(?:(?P<list>[\w.\[\]*]+): )?(?:only the topics of this scenario|topics of others removed)")
_SORTED = re.compile(r"(?P<lists>[\w ,.\[\]*]+?) sorted\b.*")


def clauses(trimmed: Iterable[str]) -> list[str]:
    """Return the clauses of all entries."""
    return [clause.strip() for entry in trimmed for clause in re.split(r"; |, (?=sorted)", entry)]


def apply(trimmed: Iterable[str], response: dict[str, Value], is_own_topic: Callable[[str], bool]) -> dict[str, Value]:
    """Return our answer with the same trims."""
    for clause in clauses(trimmed):
        removed, one, unlike, own = (form.fullmatch(clause) for form in (_REMOVED, _ONLY_ONE, _ONLY_UNLIKE, _OWN_TOPICS))
        if own is not None:
            response = _filter(response, _list_path(own["list"]), lambda item: _is_own(item, is_own_topic))
        elif one is not None:
            response = _filter(response, _list_path(one["list"]), _has_id(one["key"], int(one["id"])))
        elif unlike is not None:
            response = _filter(response, _list_path(unlike["list"]), _is_unlike(unlike["field"], unlike["value"]))
        elif removed is not None:
            response = _filter(response, _list_path(removed["list"]), lambda item: False)
    return response


def add_order(trimmed: Iterable[str], tolerance: Tolerance) -> None:
    """Make sorted lists unordered in the tolerance."""
    for clause in clauses(trimmed):
        found = _SORTED.fullmatch(clause)
        if clause.startswith("sorted"):
            tolerance.unordered.append(Rule(paths.parse("steps[*].response.*")))
        elif found is not None:
            for text in re.split(r", | and ", found["lists"]):
                for name in _names_of(paths.parse(text)[-1]):
                    tolerance.unordered.append(Rule((ANY_DEPTH, name)))


def _names_of(said: paths.Part) -> list[str]:
    """Return the fields of a word: "features" means supported_features and finalized_features."""
    word = str(said)
    return [word, *(f"{prefix}_{word}" for prefix in ("supported", "finalized", "current", "matching"))]


def _list_path(text: str | None) -> Path | None:
    return None if text is None else paths.parse(text.removeprefix(_RESPONSE))


def _is_own(item: Value, is_own_topic: Callable[[str], bool]) -> bool:
    """Return whether an element is a topic of the scenario, or has no topic name."""
    if not isinstance(item, dict):
        return True
    if item.get("resource_type", 2) != 2:
        return True
    name = item.get("name", item.get("topic_name", item.get("topic", item.get("resource_name"))))
    return name is None or is_own_topic(name)


def _has_id(key: str, wanted: int) -> Callable[[Value], bool]:
    return lambda item: wanted in (item.get(key), item.get(f"{key}_id"), item.get(f"{key}_index"))


def _is_unlike(field: str, value: str) -> Callable[[Value], bool]:
    return lambda item: str(item.get(field)) != value


def _filter(response: Value, pattern: Path | None, keeps: Callable[[Value], bool], path: Path = ()) -> Value:
    """Return a copy with only the kept elements of the lists at `pattern`, by default of the lists at the top."""
    if isinstance(response, dict):
        return {name: _filter(value, pattern, keeps, (*path, name)) for name, value in response.items()}
    if isinstance(response, list):
        is_meant = len(path) == 1 if pattern is None else paths.matches(pattern, path)
        kept = [item for item in response if keeps(item)] if is_meant else response
        return [_filter(item, pattern, keeps, (*path, index)) for index, item in enumerate(kept)]
    return response
