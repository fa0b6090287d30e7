"""Keeping garbage collector pauses far below the fetch timeout.

A full collection walks every container that lives; with a large metadata image that takes longer than peers wait for a
heartbeat. Nearly all of our garbage is freed by reference counts, so the collector is told to look at long-lived objects
rarely, and not at all at those that exist once the node has started.
"""

from __future__ import annotations

import gc

YOUNG_THRESHOLD = 20_000
MIDDLE_THRESHOLD = 50
OLD_THRESHOLD = 100


def tame_garbage_collector() -> None:
    """Call once a node has loaded its state: collects, exempts what is alive from later collections, makes full ones rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, MIDDLE_THRESHOLD, OLD_THRESHOLD)
