"""Settings of the interpreter that keep a node's pauses far below the fetch timeout. They concern the whole process.

*Garbage collection.* A full collection walks every container that lives; with a large metadata image that takes longer than peers
wait for a heartbeat. Nearly all of our garbage is freed by reference counts, so the collector looks at long-lived objects
rarely, and never at those that exist once the node has started.

*Thread switches.* A thread that comes back from the disk waits for the event loop to give up the interpreter, by default for up
to 5 ms; every commit would wait for that on two nodes. Much shorter intervals than the one below cost a busy gRPC server, whose
threads take the interpreter from the loop, a third more processor time.
"""

from __future__ import annotations

import gc
import sys

YOUNG_THRESHOLD = 20_000
MIDDLE_THRESHOLD = 50
OLD_THRESHOLD = 100
SWITCH_INTERVAL_S = 0.0005


def tame_interpreter() -> None:
    """Call once, when a node has loaded its state: what is alive then is exempt from later collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, MIDDLE_THRESHOLD, OLD_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
