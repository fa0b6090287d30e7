"""The picture of one election, from the files of a local cluster's nodes.

A node's log has its changes of state. Its trace has every message too, if the cluster was started with `kraftlab.trace.file`.
Files grow while they are read, and are large: of a log only the end is read, and of a trace a part around the first line of the
epoch, which is found by bisection, because epochs only rise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from kraftlab.config.regular_files import OddFile, open_regular
from kraftlab.lab.cluster_plan import ClusterPlan, load
from kraftlab.lab.layout import log_path

from .messages import AGAIN, ELECTION, LEADER, STATE, Event, changes, from_trace
from .space_time import Diagram, election

READ_BYTES = 4 << 20
"""Bytes that are read of a file, BEFORE_BYTES of them in front of the epoch."""
BEFORE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 16
"""Bytes in which a line of a trace begins."""
TRACE = "kraftlab.trace.file"
MORE = f"kraftlab up --property '{TRACE}=DIR/logs/{{node}}.ndjson', with the cluster's directory as DIR, records every message"
NO_DIRECTORY = (
    "The messages of elections are in files of the nodes; start the console with --data DIR, a local cluster's directory."
)
NOTHING = (
    f"The nodes' logs do not tell of this election: their lines of that time are gone, or are JSON. {MORE} of later elections."
)
STATES = f"The nodes' logs have changes of state. A dashed arrow begins at the node that a log names. {MORE} of later elections."
MESSAGES = "From the nodes' traces: a solid arrow has both ends, and ✕ means that no node recorded the arrival."
CLOCKS = "Messages arrived before they were sent, so the clocks of the nodes differ: neither the order nor ✕ is certain."
_EPOCH = re.compile(rb'"state":"\w+","epoch":(\d{1,10})')


class Picture(msgspec.Struct, frozen=True):
    """An election as a diagram, None if nothing is known of it. Its times count from the moment at which the leader was elected.
    `note` says where it is from, and what shows more.
    """

    diagram: Diagram | None
    note: str


def picture(data: Path | None, epoch: int) -> Picture:
    """Draw the election of an epoch, from the nodes' traces if these have it, otherwise from their logs."""
    plan = None if data is None else load(data)
    if data is None or plan is None:
        return Picture(None, NO_DIRECTORY)
    pattern = plan.properties.get(TRACE, "")
    traces = {pattern.replace("{node}", str(node.node_id)) for node in plan.controllers} if pattern else ()
    lines = (line for path in sorted(traces) for line in _read(Path(path), _around(epoch)).splitlines())
    events = from_trace(lines)
    diagram, note = _drawn(plan, events, epoch), MESSAGES
    if diagram is None:
        logs = [_read(log_path(data, node), _end).decode(errors="replace") for node in plan.controllers]
        diagram, note = _drawn(plan, changes(logs), epoch), STATES
    elif any(each.kind == AGAIN and each.message in ELECTION and each.epoch == epoch for each in events):
        note = CLOCKS
    return Picture(diagram, NOTHING if diagram is None else note)


def _drawn(plan: ClusterPlan, events: Sequence[Event], epoch: int) -> Diagram | None:
    elected = (each for each in events if each.kind == STATE and each.state == LEADER and each.epoch == epoch)
    leader = next(elected, None)
    if leader is None:
        return None
    names = {node.node_id: node.name for node in plan.nodes}
    drawn = election(leader, events, names, lanes=(node.node_id for node in plan.controllers))
    return msgspec.structs.replace(drawn, times=tuple((y, at_us - leader.at_us) for y, at_us in drawn.times))


def _read(path: Path, begin: Callable[[BinaryIO, int], int]) -> bytes:
    """Return a part of a regular file, from what `begin` returns for the file and its size; nothing if it cannot be read."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            file.seek(begin(file, os.fstat(file.fileno()).st_size))
            return file.read(READ_BYTES)
    except (OddFile, OSError):
        return b""


def _end(_: BinaryIO, size: int) -> int:
    return max(0, size - READ_BYTES)


def _around(epoch: int) -> Callable[[BinaryIO, int], int]:
    def begin(file: BinaryIO, size: int) -> int:
        low, high = 0, size
        while high - low > BLOCK_BYTES:
            middle = (low + high) // 2
            file.seek(middle)
            line = _EPOCH.search(file.read(BLOCK_BYTES))
            if line is None or int(line[1]) >= epoch:  # no line: the zeros that a killed process has left
                high = middle
            else:
                low = middle
        return max(0, low - BEFORE_BYTES)

    return begin
