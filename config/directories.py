"""Paths of a node's directories: `log.dirs`, `log.dir`, `metadata.log.dir`, and the directory of a local cluster.

Every path is absolute: a relative one would name another directory wherever the node is started from, and the node, or a command
that formats it, would find an empty one there. A comma separates entries and cannot be part of a path. No directory lies inside
another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .errors import ConfigError


def parse_directories(text: str) -> tuple[Path, ...]:
    """Return the entries of a list, which may be empty. ConfigError with the fault and the next step."""
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if not all(items):
        rest = list(dict.fromkeys(filter(None, items)))
        twice = "".join(f", and {item} is listed twice" for item in rest if items.count(item) > 1)
        advice = f"write {','.join(rest)}" if rest else "write absolute paths, separated by commas"
        raise ConfigError(f"an entry is empty{twice}; {advice}")
    paths = tuple(map(_absolute, items))
    check_apart(paths)
    return paths


def parse_directory(text: str) -> Path:
    """Return a single path. ConfigError with the fault and the next step."""
    check_no_comma(text)
    return _absolute(text.strip())


def check_apart(paths: Iterable[Path]) -> None:
    """ConfigError if one path is another one, or lies inside it."""
    seen: list[Path] = []
    for path in paths:
        for other in seen:
            if path == other:
                raise ConfigError(f"{path} is listed twice; give each directory a place of its own")
            inner, outer = (path, other) if other in path.parents else (other, path)
            if outer in inner.parents:
                raise ConfigError(f"{inner} lies inside {outer}; give each directory a place of its own")
        seen.append(path)


def named_directory(directories: Iterable[str], name: str) -> str:
    """Return the directory that a person means by its path, or by the last parts of its path: `d1` for `/data/d1`.

    ConfigError lists the directories if the name fits none or several of them.
    """
    every = sorted(directories)
    wanted = name.rstrip("/") or name
    found = [path for path in every if path == wanted] or [path for path in every if path.endswith(f"/{wanted}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{name!r} may be each of {', '.join(found)}; give more of the path")
    raise ConfigError(f"there is no log directory {name!r}; there are {', '.join(every) or 'none'}")


def check_no_comma(text: str) -> None:
    """ConfigError for a path that could not be an entry of a list."""
    if not text.strip():
        raise ConfigError("the path is empty; write an absolute path")
    if "," in text:
        raise ConfigError("a comma separates the entries of log.dirs and cannot be part of a path; use a path without one")


def _absolute(item: str) -> Path:
    if not os.path.isabs(item):
        raise ConfigError(f"{item!r} is not an absolute path; write {os.path.abspath(item)} if that is the directory")
    return Path("/" + os.path.normpath(item).lstrip("/"))
