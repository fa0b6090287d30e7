"""Recordings on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from .paths import Value

VOLATILE_FILE = "volatile.json"


class BadRecording(Exception):
    """A file that is not a recording. The text names it and the reason."""


@dataclass(frozen=True)
class Document:
    """One scenario. `steps` are as in the file: each has `api` or `action`."""

    name: str
    group: str
    shows: str
    steps: tuple[dict[str, Value], ...]
    stopped_brokers: tuple[int, ...] = ()
    volatile: tuple[str, ...] = ()
    unknown_preconditions: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    """The whole file, to look up names in it."""

    @property
    def needs_no_authorizer(self) -> bool:
        """Return whether the recorded cluster refused calls because it had no authorizer."""
        return '"SECURITY_DISABLED"' in self.text


@dataclass(frozen=True)
class Folder:
    """All scenarios of a folder in the order of their names, and the tolerances of all."""

    documents: tuple[Document, ...]
    volatile: tuple[str, ...]
    volatile_names: frozenset[str]


def load_document(path: Path) -> Document | None:
    """Return the scenario in a file, None for another file. BadRecording if the file is invalid."""
    text = path.read_text(encoding="utf-8")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BadRecording(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict) or "scenario" not in data:
        return None
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadRecording(f"{path} has no list of steps")
    precondition = dict(data.get("precondition") or {})
    stopped = tuple(precondition.pop("stopped_brokers", ()))
    return Document(
        name=data["scenario"],
        group=data.get("group", ""),
        shows=data.get("shows", ""),
        steps=tuple(steps),
        stopped_brokers=stopped,
        volatile=tuple(data.get("volatile", ())),
        unknown_preconditions=tuple(precondition),
        text=text,
    )


def load_folder(directory: Path, fallback: Path) -> Folder:
    """Return the recordings of a folder, with the volatile.json of the folder or of `fallback`."""
    if not directory.is_dir():
        raise BadRecording(f"{directory} is not a folder; give one that holds recordings (*.json)")
    found = [load_document(path) for path in sorted(directory.glob("*.json")) if path.name != VOLATILE_FILE]
    documents = tuple(document for document in found if document is not None)
    if not documents:
        raise BadRecording(f"{directory} holds no recordings (*.json with a scenario)")
    own = directory / VOLATILE_FILE
    volatile = json.loads((own if own.exists() else fallback / VOLATILE_FILE).read_text(encoding="utf-8"))
    return Folder(
        documents,
        tuple(volatile.get("global_volatile", ())),
        frozenset(volatile.get("global_volatile_field_names", ())),
    )
