"""Settings of the interpreter that keep a node's pauses far below the fetch timeout. They concern the whole process.

*Garbage collection.* A full collection walks every live container; with a large metadata image that takes longer than peers wait
for a heartbeat. Reference counts free nearly all of our garbage. So the collector looks at long-lived objects rarely, and never
at those that exist once the node has started. While a snapshot is loaded, which makes millions of lasting objects, the collector
is off, and these objects are exempt afterwards. Otherwise it would walk the part that is loaded so far again and again, and stop
every other thread meanwhile.

*Thread switches.* A thread that returns from the disk waits for the event loop to give up the interpreter, by default for up to 5
ms; every commit would wait for that on two nodes. Much shorter intervals than the one below cost a busy gRPC server, whose
threads take the interpreter from the loop, a third more processor time.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_THRESHOLD = 20_000
MIDDLE_THRESHOLD = 50
OLD_THRESHOLD = 100
SWITCH_INTERVAL_S = 0.0005

_loading = 0
_lock = threading.Lock()


def tame_interpreter() -> None:
    """Apply the settings.

    Call once, when a node has loaded its state: objects that are alive then are exempt from later collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, MIDDLE_THRESHOLD, OLD_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


@contextmanager
def loading_state() -> Iterator[None]:
    """Turn collections off while a large state is built, in any thread.

    Objects that are alive at the end are exempt from later collections. Cyclic garbage that other threads make in that time stays
    for good; it should be little.
    """
    global _loading
    with _lock:
        _loading += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _loading -= 1
            gc.freeze()
            if not _loading:
                gc.enable()
