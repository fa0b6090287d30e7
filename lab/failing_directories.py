"""Log directories of a local cluster that fail on order, as a bad or a full disk does.

Theory of operation. The nodes are started with file calls that may fail (`faults/failing_calls.py`), which takes a C compiler and
Linux, and no rights. The rules name directories, so they also hold for a node that is started again. A bad disk fails every call
below the directory with EIO; a full one fails writes with ENOSPC, and names can still be made and removed.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from .cluster_plan import ClusterError
from .faults.failing_calls import ANY_CALL, FailingCalls, rules_below

_FAILING = {errno.EIO: ANY_CALL, errno.ENOSPC: "write"}
"""Error → the calls that fail with it."""


class FailingDirectories:
    """The cluster runs also where calls cannot fail on order; then `fail` says why, and what to do."""

    def __init__(self, place: Path | None) -> None:
        """`place` is for the library and its rules; None: directories of this cluster do not fail."""
        self._calls: FailingCalls | None = None
        self._missing = "the cluster takes no faults of disks; start it with kraftlab up --allow-chaos"
        if place is not None:
            try:
                self._calls = FailingCalls(place)
            except ClusterError as error:
                self._missing = f"log directories of this cluster cannot fail: {error}; then start the cluster again"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of nodes."""
        return {} if self._calls is None else self._calls.environment

    def fail(self, errors: Mapping[str, int]) -> None:
        """Let file calls in these directories fail with an errno (EIO, ENOSPC), and those in no others. ClusterError."""
        if self._calls is not None:
            rules = [rule for path, number in errors.items() for rule in rules_below(Path(path), _FAILING[number], number)]
            self._calls.set_rules(rules)
        elif errors:
            raise ClusterError(self._missing)

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()
