"""The transcript of a run, one line per step, and its hash.

The hash covers the time, node, kind of event and resulting state of every step, with or without lines: two runs with the same
hash did the same things in the same order. Steps are gathered first and hashed in bulk. Lines are made only if a reader wants
them. The last lines of a run that broke a rule come from playing it again.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kraftlab.quorum.core.effects import Effects, Trace
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.quorum_state import State

TAIL_LINES = 40
pack_step = struct.Struct("<QiiqqqqI").pack
"""The numbers of one step: time in microseconds, node id, the number of the event's type, epoch, leader id, log end offset, high
watermark, and the crc at the log's end.
"""


class StepEntry(NamedTuple):
    """One step of one node, or an event of the world (`node_id` -1, text in `event`)."""

    time_us: int
    node_id: int
    event: object
    state: State | None
    end_offset: int
    high_watermark: int
    effects: Effects

    def line(self) -> str:
        clock = f"{self.time_us // 1_000_000:>3}.{self.time_us % 1_000_000:06d}"
        if self.state is None:
            return f"{clock}  **  {self.event}"
        leader = self.state.leader_id if self.state.leader_id >= 0 else "-"
        state = f"{self.state.name[:4]} e{self.state.epoch} L{leader} {self.end_offset}/{self.high_watermark}"
        effects = "; ".join(e.text if isinstance(e, Trace) else repr(e) for e in self.effects)
        return f"{clock}  n{self.node_id}  {state:<24} {self.event!r}" + (f"  => {effects}" if effects else "")


class Transcript:
    """Keeps the last `tail_lines` lines, and gives each to `write` as it comes."""

    def __init__(self, write: Callable[[str], None] | None = None, *, tail_lines: int = 0) -> None:
        self._write = write
        self._tail: deque[StepEntry] = deque(maxlen=tail_lines)
        self.is_read = write is not None or tail_lines > 0
        """True if lines are wanted: then `show` must be called at every step."""
        self._hash = hashlib.blake2b(digest_size=16)
        self.gathered: list[bytes] = []
        """The newest steps, packed, which are not in the hash so far."""
        self._steps_hashed = 0

    @property
    def steps(self) -> int:
        return self._steps_hashed + len(self.gathered)

    def hash_steps(self) -> None:
        """Add the gathered steps to the hash."""
        self._hash.update(b"".join(self.gathered))
        self._steps_hashed += len(self.gathered)
        self.gathered.clear()

    def show(self, time_us: int, node_id: int, event: object, state: State, log: LocalLog, effects: Effects) -> None:
        """Add a line for one step of one node."""
        self._add(StepEntry(time_us, node_id, event, state, log.view.end_offset, log.high_watermark, effects))

    def note(self, time_us: int, text: str) -> None:
        """Add a line for an event of the world: a fault, a restart, the heal."""
        self.hash_steps()
        self._hash.update(f"{time_us} {text}".encode())
        if self.is_read:
            self._add(StepEntry(time_us, -1, text, None, 0, 0, []))

    def _add(self, entry: StepEntry) -> None:
        self._tail.append(entry)
        if self._write is not None:
            self._write(entry.line())

    def tail(self) -> list[str]:
        return [entry.line() for entry in self._tail]

    def digest(self) -> str:
        self.hash_steps()
        return self._hash.hexdigest()
