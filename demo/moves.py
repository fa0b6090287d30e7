"""Progress of moving replicas: a bar per replica, and the throughput under the throttle."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from rich.progress import Progress, TaskID

from kraftlab.common.sizes import bytes_text

from .lab import POLL_S, Lab, ReplicaOnDisk, StoryError, TopicPartition
from .report import StoryReport, add_bar

Arrival = tuple[int, TopicPartition]
"""A replica on its way: (receiving broker, partition)."""


class Throughput(msgspec.Struct):
    """Throughput of one receiving broker since the start of the watch.

    The last of its `bytes` came between two looks at the disks, `seconds_min` and `seconds` after the start: on a busy machine a
    look takes long. `most_ahead` is the largest ratio, at any moment after the first second, of received bytes to allowed bytes,
    without one batch in flight.
    """

    bytes_before: int
    bytes: int = 0
    seconds_min: float = 0.0
    seconds: float = 0.0
    most_ahead: float = 0.0


class MoveWatch:
    """Follows a set of arrivals until all are complete. `sizes` gives the bytes that each has to receive."""

    def __init__(self, lab: Lab, arrivals: set[Arrival], sizes: dict[TopicPartition, int], largest_batch: int) -> None:
        self._lab = lab
        self._sizes = sizes
        self._largest_batch = largest_batch
        self._open = set(arrivals)
        self._arrivals = arrivals
        self.received: dict[Arrival, int] = dict.fromkeys(arrivals, 0)
        self._look()
        self._started = time.monotonic()
        self.by_broker = {broker: Throughput(self._received_by(broker)) for broker, _ in arrivals}
        self._looked_at = 0.0
        """Seconds from the start to the last look."""

    @property
    def total_bytes(self) -> int:
        return sum(self._sizes[partition] for _, partition in self._arrivals)

    @property
    def received_bytes(self) -> int:
        return sum(self.received.values())

    @property
    def is_complete(self) -> bool:
        return not self._open

    def poll(self, limit_bytes_per_s: float) -> dict[Arrival, ReplicaOnDisk]:
        """Read the disks and the running reassignments once; update the received bytes."""
        moving = self._lab.reassigning()
        looked_at = time.monotonic() - self._started
        seen = self._look()
        elapsed = time.monotonic() - self._started
        done = {arrival for arrival in self._open if arrival[1] not in moving}
        for arrival in done:
            self.received[arrival] = self._sizes[arrival[1]]
        self._measure(elapsed, limit_bytes_per_s)
        self._looked_at = looked_at
        self._open -= done
        return seen

    def _look(self) -> dict[Arrival, ReplicaOnDisk]:
        on_disk = self._lab.replicas_on_disk()
        seen: dict[Arrival, ReplicaOnDisk] = {}
        for arrival in self._open:
            broker, partition = arrival
            for replica in on_disk.get(partition, []):
                if replica.broker == broker and not replica.is_future:
                    seen[arrival] = replica
                    self.received[arrival] = min(replica.size_bytes, self._sizes[partition])
        return seen

    def _received_by(self, broker: int) -> int:
        return sum(size for (receiver, _), size in self.received.items() if receiver == broker)

    def _measure(self, elapsed: float, limit_bytes_per_s: float) -> None:
        for broker, throughput in self.by_broker.items():
            received = self._received_by(broker) - throughput.bytes_before
            if received > throughput.bytes:
                throughput.bytes, throughput.seconds_min, throughput.seconds = received, self._looked_at, elapsed
                if elapsed >= 1:
                    ahead = max(received - self._largest_batch, 0) / (limit_bytes_per_s * elapsed)
                    throughput.most_ahead = max(throughput.most_ahead, ahead)

    def run(self, report: StoryReport, limit_bytes_per_s: float, half_way: Callable[[], None], *, timeout_s: float = 120) -> None:
        """Draw a bar per arrival until all are complete; call `half_way` once, after a third of the bytes."""
        with report.progress() as progress:
            bars = {
                arrival: add_bar(progress, f"{arrival[1][0]}-{arrival[1][1]} → broker {arrival[0]}", self._sizes[arrival[1]])
                for arrival in sorted(self._arrivals)
            }
            called = False
            while not self.is_complete:
                if time.monotonic() - self._started > timeout_s:
                    raise StoryError(f"{len(self._open)} replicas are still moving after {timeout_s:.0f} s: {sorted(self._open)}")
                seen = self.poll(limit_bytes_per_s)
                self._draw(progress, bars, seen)
                if not called and self.received_bytes * 3 >= self.total_bytes:
                    called = True
                    half_way()
                time.sleep(POLL_S)
            if not called:
                half_way()

    def _draw(self, progress: Progress, bars: dict[Arrival, TaskID], seen: dict[Arrival, ReplicaOnDisk]) -> None:
        for arrival, bar in bars.items():
            replica = seen.get(arrival)
            progress.update(bar, completed=self.received[arrival] or (arrival not in self._open), note=note_of(replica))


def note_of(replica: ReplicaOnDisk | None) -> str:
    """Return the rate and remaining time of a replica that is being copied."""
    if replica is None or replica.bytes_left is None:
        return ""
    if replica.error:
        return f"[red]{replica.error}[/]"
    rate = replica.bytes_per_second
    eta = f"ETA {replica.bytes_left / rate:.0f} s" if rate > 0 else "waiting"
    return f"{bytes_text(max(rate, 0)):>9}/s  {eta}"
