"""What differs between two images, as paths in their trees: for people, for scripts, and for tests.

The comparison walks both trees side by side and enters only what is not equal; what the two images share is not even compared.
It knows nothing of what the parts mean. A difference is a path with what stands there in both; ABSENT where there is nothing.
Putting all differences of (a, b) into a's tree gives b's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from .image import MetadataImage
from .record_text import IsSecret
from .tree import ALIASES, Directory, Node, image_tree, plain_document


class Absent:
    """Nothing stands there."""

    def __repr__(self) -> str:
        return "(nothing)"


ABSENT = Absent()
Path = tuple[str, ...]

BOOKKEEPING = "requests"
"""The part of an image that tells nothing of the cluster: answers that are kept so that requests are carried out once."""


class Difference(NamedTuple):
    """`before` and `after` are not both directories, and not equal."""

    path: Path
    before: Node | Absent
    after: Node | Absent


def image_differences(before: MetadataImage, after: MetadataImage, is_secret: IsSecret) -> Iterator[Difference]:
    """Everything that differs but where the images stand, in the order of the tree."""
    for found in differences(image_tree(before, is_secret), image_tree(after, is_secret)):
        if found.path[0] != "provenance":
            yield found


def differences(before: Directory, after: Directory, path: Path = ()) -> Iterator[Difference]:
    """Everything that differs between two trees."""
    if before.source is not None and (before.source is after.source or before.source == after.source):
        return
    for name in dict.fromkeys([*before.names(), *after.names()]):
        here = (*path, name)
        if here in ALIASES:
            continue
        old: Node | Absent = before.get(name) if name in before else ABSENT
        new: Node | Absent = after.get(name) if name in after else ABSENT
        if isinstance(old, Directory) and isinstance(new, Directory):
            yield from differences(old, new, here)
        elif isinstance(old, Directory) or isinstance(new, Directory) or type(old) is not type(new) or old != new:
            yield Difference(here, old, new)


class Change(NamedTuple):
    """What became of one thing (a partition, a config resource, a rule): `fields` are name → (before, after) as JSON has them.

    `kind` is added, removed or changed; of what was added or removed one of the two is always None.
    """

    path: Path
    kind: str
    fields: dict[str, tuple[object, object]]


def changes_of(found: Iterator[Difference]) -> Iterator[Change]:
    """Differences gathered by the directory they stand in; whole directories that came or went, one change for each in them."""
    pending: Change | None = None
    for path, old, new in found:
        whole = new if isinstance(new, Directory) else old if isinstance(old, Directory) else None
        if whole is None:
            if pending is not None and pending.path != path[:-1]:
                yield pending
                pending = None
            if pending is None:
                pending = Change(path[:-1], "changed", {})
            pending.fields[path[-1]] = (_plain(old), _plain(new))
            continue
        if pending is not None:
            yield pending
            pending = None
        yield from whole_changes(path, whole, "added" if whole is new else "removed")
    if pending is not None:
        yield pending


def _plain(node: Node | Absent) -> Any:
    return None if isinstance(node, Absent) else plain_document(node)


def whole_changes(path: Path, directory: Directory, kind: str) -> Iterator[Change]:
    """A directory that was added or removed: one change for each directory in it that holds values, or nothing."""
    leaves: dict[str, tuple[Any, Any]] = {}
    inner: list[tuple[Path, Directory]] = []
    for name, node in directory.items():
        if isinstance(node, Directory):
            inner.append(((*path, name), node))
        else:
            shown = plain_document(node)
            leaves[name] = (None, shown) if kind == "added" else (shown, None)
    if leaves or not inner:
        yield Change(path, kind, leaves)
    for inner_path, node in inner:
        yield from whole_changes(inner_path, node, kind)


def change_documents(changes: Iterator[Change]) -> Iterator[dict[str, object]]:
    """Changes as JSON: `{"path", "change", "fields": {name: {"before", "after"}}}`."""
    for path, kind, fields in changes:
        told = {name: {"before": before, "after": after} for name, (before, after) in fields.items()}
        yield {"path": "/".join(path), "change": kind, "fields": told}


def change_lines(changes: Iterator[Change]) -> Iterator[str]:
    """Changes as lines: `+ path field=value`, `- path field=value`, `~ path field: before -> after`."""
    for path, kind, fields in changes:
        if kind == "changed":
            told = [f"{name}: {_text(before)} -> {_text(after)}" for name, (before, after) in fields.items()]
            yield f"~ {'/'.join(path)}  {'; '.join(told)}"
        else:
            told = [f"{name}={_text(before if kind == 'removed' else after)}" for name, (before, after) in fields.items()]
            yield f"{'-' if kind == 'removed' else '+'} {'/'.join(path)}  {' '.join(told)}".rstrip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
