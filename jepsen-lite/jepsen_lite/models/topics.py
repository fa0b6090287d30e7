"""One topic name: a topic of that name exists, with the identity that the cluster gave it, or none does.

Calls: `create` {"tag": t, …} → the new id, or None if the answer did not say; `delete` None, or {"id": i} → anything;
`describe` → {"id": i, "tag": t, …} or None. The id of a topic whose creation was not answered is learnt from who sees it first.
That an id is never given twice is not checked here but by `checkers.unique`: it concerns all names together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .model import Operation, Refused


class Topic(NamedTuple):
    """What is known of the topic; None is not known."""

    id: Any = None
    tag: Any = None


Existing = tuple[Topic, ...]
"""() or (topic,)."""


class TopicName:
    """`exists` are the errors of a `create` that found a topic, `missing` those of a `delete` or `describe` that found none."""

    functions = frozenset({"create", "delete", "describe"})
    reads = frozenset({"describe"})

    def __init__(
        self,
        exists: frozenset[str] = frozenset({"TOPIC_ALREADY_EXISTS"}),
        missing: frozenset[str] = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"}),
    ) -> None:
        self.refusals = exists | missing

    def initial(self) -> Existing:
        return ()

    def step(self, state: Existing, operation: Operation) -> Existing | None:
        request: Any = operation.input
        f, value = request
        refused = type(operation.output) is Refused
        if f == "create":
            if refused:
                return state if state else None
            created = Topic(None if operation.is_unknown else operation.output, _field(value, "tag"))
            return None if state else (created,)
        wanted = Topic(_field(value, "id")) if f == "delete" else _seen(operation.output)
        found = _merged(state, wanted)
        if refused:
            return state if not state or (f == "delete" and found is None) else None
        if f == "delete":
            return None if found is None else ()
        return found if operation.output is not None else (state if not state else None)

    def describe(self, state: Existing) -> str:
        return f"topic {state[0].id or 'of unknown id'}" if state else "no topic"


def _field(value: Any, name: str) -> Any:
    return dict(value).get(name) if isinstance(value, tuple) else None


def _seen(output: Any) -> Topic:
    return Topic(_field(output, "id"), _field(output, "tag"))


def _merged(state: Existing, seen: Topic) -> Existing | None:
    """The topic that there is, with what was seen of it; None if there is none, or it is another."""
    if not state:
        return None
    merged = []
    for known, new in zip(state[0], seen, strict=True):
        if known is not None and new is not None and known != new:
            return None
        merged.append(new if known is None else known)
    return (Topic(*merged),)
