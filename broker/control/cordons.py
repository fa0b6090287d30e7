"""Cordoned log directories (KIP-1066): they keep their replicas and get no new ones.

`cordoned.log.dirs` is a list of configured paths, or `*` for all of them. Paths that are not configured are ignored, so that an
outdated value does not stop a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def cordoned_dirs(value: str | None, log_dirs: Iterable[Path]) -> frozenset[Path]:
    """Return the directories of `log_dirs` that the property's value cordons."""
    names = {name.strip() for name in (value or "").split(",")}
    return frozenset(path for path in log_dirs if ALL in names or str(path) in names)
