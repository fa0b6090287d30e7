"""Which log directories are cordoned (KIP-1066): they keep serving what they have and get no new replicas.

`cordoned.log.dirs` is a list of configured paths, or `*` for all of them. What it names besides is not this broker's and is
left out: an older or a foreign value must not stop a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def cordoned_dirs(value: str | None, log_dirs: Iterable[Path]) -> frozenset[Path]:
    """Those of `log_dirs` that the property's value cordons."""
    names = {name.strip() for name in (value or "").split(",")}
    return frozenset(path for path in log_dirs if ALL in names or str(path) in names)
