"""Differences between two images as paths in their trees: for people, scripts and tests.

The comparison walks both trees side by side and enters only unequal directories; parts that both images share are not even
compared. It does not know the meaning of the parts. A difference is a path with its node in both trees, ABSENT where there is
none. Applying all differences of (a, b) to a's tree gives b's tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from .image import MetadataImage
from .record_text import IsSecret
from .tree import ALIASES, Directory, Node, image_tree, plain_document


class Absent:
    """Type of the placeholder for a missing node."""

    def __repr__(self) -> str:
        return "(nothing)"


ABSENT = Absent()
Path = tuple[str, ...]

BOOKKEEPING = "requests"
"""Part of an image that does not describe the cluster: the answers of requests that are carried out once."""


class Difference(NamedTuple):
    """`before` and `after` are unequal, and at most one of them is a directory."""

    path: Path
    before: Node | Absent
    after: Node | Absent


def image_differences(before: MetadataImage, after: MetadataImage, is_secret: IsSecret) -> Iterator[Difference]:
    """All differences but the images' positions, in the order of the tree."""
    for found in differences(image_tree(before, is_secret), image_tree(after, is_secret)):
        if found.path[0] != "provenance":
            yield found


def differences(before: Directory, after: Directory, path: Path = ()) -> Iterator[Difference]:
    """All differences between two trees."""
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


class ImageChange(NamedTuple):
    """Change of one thing (a partition, a config resource, an ACL). `fields`: name → (before, after), as JSON values.

    `kind` is added, removed or changed. In an added or removed thing, one of before and after is always None.
    """

    path: Path
    kind: str
    fields: dict[str, tuple[object, object]]


def changes_of(found: Iterator[Difference]) -> Iterator[ImageChange]:
    """Differences grouped by directory. A whole directory that was added or removed gives one change for each directory in it."""
    pending: ImageChange | None = None
    for path, old, new in found:
        whole = new if isinstance(new, Directory) else old if isinstance(old, Directory) else None
        if whole is None:
            if pending is not None and pending.path != path[:-1]:
                yield pending
                pending = None
            if pending is None:
                pending = ImageChange(path[:-1], "changed", {})
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


def whole_changes(path: Path, directory: Directory, kind: str) -> Iterator[ImageChange]:
    """Changes of an added or removed directory: one for each directory in it that holds values or is empty."""
    leaves: dict[str, tuple[Any, Any]] = {}
    inner: list[tuple[Path, Directory]] = []
    for name, node in directory.items():
        if isinstance(node, Directory):
            inner.append(((*path, name), node))
        else:
            shown = plain_document(node)
            leaves[name] = (None, shown) if kind == "added" else (shown, None)
    if leaves or not inner:
        yield ImageChange(path, kind, leaves)
    for inner_path, node in inner:
        yield from whole_changes(inner_path, node, kind)


def change_documents(changes: Iterator[ImageChange]) -> Iterator[dict[str, object]]:
    """Changes as JSON: `{"path", "change", "fields": {name: {"before", "after"}}}`."""
    for path, kind, fields in changes:
        shown = {name: {"before": before, "after": after} for name, (before, after) in fields.items()}
        yield {"path": "/".join(path), "change": kind, "fields": shown}


def change_lines(changes: Iterator[ImageChange]) -> Iterator[str]:
    """Changes as lines: `+ path field=value`, `- path field=value`, `~ path field: before -> after`."""
    for path, kind, fields in changes:
        if kind == "changed":
            shown = [f"{name}: {_text(before)} -> {_text(after)}" for name, (before, after) in fields.items()]
            yield f"~ {'/'.join(path)}  {'; '.join(shown)}"
        else:
            shown = [f"{name}={_text(before if kind == 'removed' else after)}" for name, (before, after) in fields.items()]
            yield f"{'-' if kind == 'removed' else '+'} {'/'.join(path)}  {' '.join(shown)}".rstrip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
