"""A network in memory, under trio's clock, with directed links that can be cut, slow, lossy and out of order.

Theory of operation. A connection is two pipes, each on the link from its sender to its receiver. A pipe collects sent bytes into
whole frames. Each frame travels by itself, for a time that the link draws, and the link's shape decides whether the frame is
lost, doubled or overtaken. Frames that have arrived are a stream of bytes: a reader can get them in pieces, and a sender waits
while its pipe is full, so frames are torn as by a kernel. One task delivers all frames in the order of their times.

A cut link either holds or resets. A link that holds delivers nothing, not even the end of a connection, and no connection can be
opened over it. A link that resets breaks its connections. A paused node accepts connections and messages, which wait as in its
kernel. A node that has died sends nothing more; messages under way still arrive, and then the end of each of its connections.
Connections to an endpoint without a listener are refused.

Every link draws from a generator of its own, so the same things happen to the same messages.
"""

from __future__ import annotations

import errno
import heapq
import math
import os
import random
from collections.abc import Callable, Iterable

import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.lab.links.shape import PLAIN, Cut, LinkShape
from kraftlab.wire.network import CONNECT_TIMEOUT_S, Accept

LENGTH_BYTES = 4
WINDOW_BYTES = 128 * 1024
"""Number of bytes in a pipe at which its sender has to wait."""
TRAVEL_S = (0.0002, 0.0002, 0.0004, 0.001, 0.004)
"""Travel times of messages, more or less."""
TORN_RATE = 0.05
"""Share of the reads that return only a part of the available bytes."""

Pair = tuple[int, int]
"""(source, target)."""


class MemoryLink:
    """The directed link from one node to another."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cut: Cut | None = None
        self.shape = PLAIN
        self.pipes: dict[Pipe, None] = {}
        self.cleared = trio.Event()

    @property
    def is_held(self) -> bool:
        return self.cut is Cut.HOLD

    def changed(self) -> None:
        """Notify tasks and pipes that messages may pass again, or connections break."""
        self.cleared.set()
        self.cleared = trio.Event()
        for pipe in tuple(self.pipes):
            pipe.look()

    def travel_s(self) -> float:
        return self.chance.choice(TRAVEL_S) * self.chance.uniform(0.5, 1.5)

    async def passed(self) -> None:
        """Wait for one trip over the link. ConnectionResetError."""
        await trio.sleep(self.travel_s() + self.shape.delay_ms / 1000)
        while self.is_held:
            await self.cleared.wait()
        if self.cut is Cut.RESET:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class Alarms:
    """Calls actions at their times, one after the other. Actions of the same time run in the order in which they were set."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._scope = trio.CancelScope()

    def at(self, due: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (due, self._number, action))
        self._scope.deadline = min(self._scope.deadline, due)

    async def run(self) -> None:
        while True:
            self._scope = trio.CancelScope(deadline=self._due[0][0] if self._due else math.inf)
            with self._scope:
                await trio.sleep_forever()
            while self._due and self._due[0][0] <= trio.current_time():
                heapq.heappop(self._due)[2]()


class Pipe:
    """One direction of one connection."""

    def __init__(self, link: MemoryLink, alarms: Alarms) -> None:
        self._link, self._alarms = link, alarms
        self._unframed = bytearray()
        self._under_way: list[tuple[float, int, bytes]] = []
        """Messages as (time due, number, frame). An empty frame is the end of the stream."""
        self._waiting_bytes = 0
        self._numbers = 0
        self._not_before = 0.0
        self._arrived = bytearray()
        self.is_closed = False
        """True after the sender has closed."""
        self._has_ended = False
        self._is_abandoned = False
        self.is_broken = False
        self.twin: Pipe
        """The other direction."""
        self.changed = trio.Event()
        """Set when the pipe can become readable or writable."""
        link.pipes[self] = None

    # The sender's end

    @property
    def is_writable(self) -> bool:
        return self.is_broken or self._waiting_bytes + len(self._arrived) < WINDOW_BYTES

    def take(self, data: bytes | bytearray | memoryview) -> int:
        if self.is_broken or self.is_closed:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if not self.is_writable:
            raise BlockingIOError(errno.EAGAIN, "the pipe is full")
        count = min(len(data), WINDOW_BYTES - self._waiting_bytes - len(self._arrived))
        self._unframed += data[:count]
        while len(self._unframed) >= LENGTH_BYTES:
            size = LENGTH_BYTES + int.from_bytes(self._unframed[:LENGTH_BYTES], "big")
            if len(self._unframed) < size:
                break
            frame = bytes(self._unframed[:size])
            del self._unframed[:size]
            self._send(frame)
        return count

    def end(self) -> None:
        """Close the sender's end."""
        if not self.is_closed:
            self.is_closed = True
            last = max((due for due, _, _ in self._under_way), default=0.0)
            self._put(max(last, trio.current_time() + self._link.travel_s()), b"")

    def _send(self, frame: bytes) -> None:
        link = self._link
        if link.cut is Cut.RESET:
            self.break_both()
            return
        left_at = trio.current_time() + link.travel_s()
        copies, self._not_before = link.shape.deliveries(link.chance, left_at, self._not_before)
        for due in copies:
            self._put(due, frame)

    def _put(self, due: float, frame: bytes) -> None:
        self._numbers += 1
        self._waiting_bytes += len(frame)
        heapq.heappush(self._under_way, (due, self._numbers, frame))
        self._alarms.at(due, self.look)

    # On the way

    def look(self) -> None:
        """Deliver frames that are due."""
        if self.is_broken or self._link.is_held:
            return
        if self._link.cut is Cut.RESET:
            self.break_both()
            return
        while self._under_way and self._under_way[0][0] <= trio.current_time():
            _, _, frame = heapq.heappop(self._under_way)
            self._waiting_bytes -= len(frame)
            self._arrived += b"" if self._is_abandoned else frame
            if not frame:
                self._has_ended = True
                self._link.pipes.pop(self, None)
        self._notify()

    def drop(self) -> None:
        """Lose the messages under way, but not the end of the stream."""
        self._under_way = [message for message in self._under_way if not message[2]]
        self._waiting_bytes = 0
        self._notify()

    def break_both(self) -> None:
        for pipe in (self, self.twin):
            pipe.is_broken = True
            pipe._under_way.clear()
            pipe._link.pipes.pop(pipe, None)
            pipe._notify()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    # The reader's end

    @property
    def is_readable(self) -> bool:
        return self.is_broken or self._has_ended or bool(self._arrived)

    def give(self, room: memoryview) -> int:
        if self.is_broken:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if not self._arrived:
            if self._has_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing has arrived")
        count = min(len(room), len(self._arrived))
        if self._link.chance.random() < TORN_RATE:
            count = self._link.chance.randint(1, count)
        room[:count] = self._arrived[:count]
        del self._arrived[:count]
        self._notify()
        return count

    def abandon(self) -> None:
        """Close the reader's end. Later frames are lost; the writer notices the end of the other direction."""
        self._is_abandoned = True
        self._arrived.clear()
        self._notify()


class MemoryWire:
    """`kraftlab.wire.network.Wire`."""

    takes_files = True
    round_trip_s = None
    peer = None

    def __init__(self, out: Pipe, into: Pipe) -> None:
        self._out, self._in = out, into

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        return self._out.take(data)

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        return self._out.take(os.pread(descriptor, min(size_bytes, WINDOW_BYTES), position))

    def recv_into(self, room: memoryview, /) -> int:
        return self._in.give(room)

    def await_bytes(self, size_bytes: int, /) -> None:
        """Do nothing: a reader is woken for any bytes."""

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._in.is_readable:
            await self._in.changed.wait()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._out.is_writable:
            await self._out.changed.wait()

    @property
    def is_closed(self) -> bool:
        return self._out.is_closed

    def close(self) -> None:
        self._out.end()
        self._in.abandon()


class MemoryPort:
    """`kraftlab.wire.network.ListeningPort`."""

    def __init__(self, place: Place, endpoint: Endpoint) -> None:
        self.place, self.endpoint = place, endpoint
        self._waiting: list[tuple[MemoryWire, str]] = []
        self._rung = trio.Event()

    @property
    def number(self) -> int:
        return self.endpoint.port

    def arrive(self, wire: MemoryWire, source: str) -> None:
        self._waiting.append((wire, source))
        self._rung.set()

    async def serve(self, accept: Accept, nursery: trio.Nursery) -> None:
        try:
            while True:
                await self._rung.wait()
                self._rung = trio.Event()
                waiting, self._waiting = self._waiting, []
                for wire, source in waiting:
                    nursery.start_soon(accept, wire, source)
        finally:
            self.place.give_up(self)


class Place:
    """The network as one node sees it in one of its lives (`kraftlab.wire.network.Network`)."""

    def __init__(self, network: MemoryNetwork, node: int, chance: random.Random) -> None:
        self.network, self.node, self.chance = network, node, chance
        self._wires: list[MemoryWire] = []
        self._is_dead = False

    def new_wire(self, out: Pipe, into: Pipe) -> MemoryWire:
        self._wires = [wire for wire in self._wires if not wire.is_closed]
        wire = MemoryWire(out, into)
        self._wires.append(wire)
        return wire

    async def connect(self, endpoint: Endpoint) -> MemoryWire:
        network = self.network
        target = network.node_at.get(endpoint)
        if target is None or self._is_dead:
            raise OSError(errno.EHOSTUNREACH, f"no way to {endpoint}")
        there, back = network.link(self.node, target), network.link(target, self.node)
        wire: MemoryWire | None = None
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                await there.passed()
                port = network.ports.get(endpoint)
                if port is not None:
                    out, into = Pipe(there, network.alarms), Pipe(back, network.alarms)
                    out.twin, into.twin = into, out
                    wire = self.new_wire(out, into)
                    port.arrive(port.place.new_wire(into, out), f"node {self.node}")
                await back.passed()
        except BaseException as error:
            if wire is not None:
                wire.close()
            if isinstance(error, trio.TooSlowError):
                raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from error
            raise
        if wire is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return wire

    async def listen(self, host: str, port: int) -> MemoryPort:
        endpoint = Endpoint(host, port)
        if endpoint in self.network.ports or self.network.node_at.get(endpoint) != self.node:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        await trio.lowlevel.checkpoint()
        taken = self.network.ports[endpoint] = MemoryPort(self, endpoint)
        return taken

    def give_up(self, port: MemoryPort) -> None:
        """Stop listening on the port, unless another life of the node listens there."""
        if self.network.ports.get(port.endpoint) is port:
            del self.network.ports[port.endpoint]

    def die(self) -> None:
        """Close all connections and ports; nothing more leaves the node."""
        self._is_dead = True
        for port in [port for port in self.network.ports.values() if port.place is self]:
            self.give_up(port)
        for wire in self._wires:
            wire.close()


class MemoryNetwork:
    """All links. `node_at` has the node at each address; `chance` makes the generator of a name. `alarms.run` must run."""

    def __init__(self, node_at: dict[Endpoint, int], chance: Callable[[str], random.Random]) -> None:
        self.node_at = node_at
        self.ports: dict[Endpoint, MemoryPort] = {}
        self.alarms = Alarms()
        self._chance = chance
        self._links: dict[Pair, MemoryLink] = {}

    def link(self, source: int, target: int) -> MemoryLink:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = MemoryLink(self._chance(f"link {source} {target}"))
        return link

    def cut(self, pairs: Iterable[Pair], cut: Cut) -> None:
        for link in [self.link(*pair) for pair in pairs]:
            link.cut = cut
            link.changed()

    def heal(self, pairs: Iterable[Pair], *, drop: bool = False) -> None:
        for link in [self.link(*pair) for pair in pairs]:
            link.cut, link.shape = None, PLAIN
            if drop:
                for pipe in tuple(link.pipes):
                    pipe.drop()
            link.changed()

    def shape(self, pairs: Iterable[Pair], shape: LinkShape) -> None:
        for pair in pairs:
            self.link(*pair).shape = shape
