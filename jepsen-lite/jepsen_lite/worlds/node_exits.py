"""Nodes that ended by themselves, without a fault that may end nodes."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kraftlab.checking.facts import Strike

from ..faults.kind import Kind
from ..faults.kinds import KINDS

ENDS_WITHIN_NS = 10_000_000_000
"""A node may take so long to end, and to be noticed, after its disk failed."""
_KILLED = -signal.SIGKILL


def own_exits(
    exits: Iterable[tuple[int, int, str]], strikes: Iterable[Strike], kinds: Mapping[str, Kind] = KINDS
) -> dict[int, str]:
    """Return the nodes that ended by themselves with their last words, from (node, time, last words). An end during or shortly
    after a strike at the node that may end nodes does not count.
    """
    expected = [
        (strike.begin_ns, math.inf if strike.end_ns is None else strike.end_ns + ENDS_WITHIN_NS, strike.nodes)
        for strike in strikes
        if kinds[strike.kind].ends_nodes
    ]
    found: dict[int, str] = {}
    for node, at_ns, words in exits:
        if not any(begin_ns <= at_ns <= end_ns and node in nodes for begin_ns, end_ns, nodes in expected):
            found.setdefault(node, words)
    return found


class Processes(Protocol):
    """Processes of nodes, such as those of `kraftlab.lab.LocalCluster`."""

    def exited(self) -> dict[int, int]: ...

    def last_words(self, node_id: int) -> str: ...


class NodeExits:
    """The ends of a cluster's processes, each noted once."""

    def __init__(self, cluster: Processes, now_ns: Callable[[], int]) -> None:
        self._cluster, self._now_ns = cluster, now_ns
        self._noted: set[int] = set()
        """Nodes with a noted end that were not started since."""
        self.found: list[tuple[int, int, str]] = []
        """(node, time, last words)."""

    def collect(self, *, at_rest: bool) -> None:
        """Note the nodes that have ended. While faults strike, a node killed by a fault looks as if it had ended by kill -9."""
        exited = self._cluster.exited()
        self._noted &= exited.keys()
        for node_id, code in exited.items():
            if node_id not in self._noted and (at_rest or code != _KILLED):
                self.found.append((node_id, self._now_ns(), f"exit code {code}: {self._cluster.last_words(node_id)}"))
                self._noted.add(node_id)
