"""The network between nodes: delays, reorders, loses, duplicates, replays, cuts off and refuses requests and responses.

A request to a machine without a process is refused, as by a kernel, unless the link is cut. A response can be lost although its
request was executed. When a process dies, some of its callers see a broken connection and the others see nothing; some of the
processes that it had called see that it hung up. Senders keep track of timeouts themselves.
"""

from __future__ import annotations

from kraftlab.quorum.core.effects import Send
from kraftlab.quorum.core.events import RequestAbandoned, RequestFailed
from kraftlab.quorum.core.messages import Response

from .options import CALM, NetworkOptions
from .stage import LISTENER, Inbound, Peer, Stage


class SimulatedNetwork:
    """The network of a world; times are in microseconds."""

    def __init__(self, world: Stage) -> None:
        self._world = world
        self._after = world.after
        self._random = world.options.random("network")
        self._draw = self._random.random
        options = world.options
        self.be(options.network)
        self._has_endpoints = options.dynamic_voters
        self._named = range(options.voters + options.observers if options.dynamic_voters else options.voters)
        """The nodes that every configuration names; other nodes never vote."""
        self._cuts: dict[tuple[int, int], int] = {}
        self._clogged_until_us: dict[tuple[int, int], int] = {}
        self._last_arrival_us: dict[tuple[int, int], int] = {}

    def be(self, options: NetworkOptions) -> None:
        """Set the quality of all links. Cuts and held messages stay. Fractions are floats, since draws are floats."""
        self._twice_delay_us = 2.0 * options.delay_us
        self._loss, self._response_loss = float(options.loss), float(options.response_loss)
        self._duplicates, self._replays = float(options.duplicates), float(options.replays)
        self._keeps_order = not options.reordering

    @property
    def held_until_us(self) -> int:
        """Time at which the last held message goes on."""
        return max(self._clogged_until_us.values(), default=0)

    def calm(self) -> None:
        """End all trouble of the network."""
        self.be(CALM)
        self._cuts.clear()
        self._clogged_until_us.clear()

    @property
    def cuts(self) -> tuple[tuple[int, int], ...]:
        """Links, as source and target, whose messages are lost now."""
        return tuple(sorted(self._cuts))

    @property
    def held(self) -> tuple[tuple[int, int], ...]:
        """Links, as source and target, whose messages are held now."""
        now_us = self._world.now_us
        return tuple(sorted(way for way, until_us in self._clogged_until_us.items() if until_us > now_us))

    def cut(self, source: int, target: int) -> None:
        """Lose messages from `source` to `target`, until `restore` was called as often as `cut`."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def cut_for_good(self, source: int, target: int) -> None:
        """Lose messages from `source` to `target` forever; no later `restore` ends that."""
        self._cuts[source, target] = 1 << 30

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def clog(self, source: int, target: int, until_us: int) -> None:
        """Hold messages from `source` to `target` until then, like a connection that was down for a while."""
        self._clogged_until_us[source, target] = until_us

    def restore(self, source: int, target: int) -> None:
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)

    def delay_us(self, way: tuple[int, int]) -> int:
        """Draw the delay of a message from the first node to the second. Measurements override this."""
        draw = self._draw
        delay_us = 20 + int(draw() * self._twice_delay_us)
        if draw() < 0.02:
            delay_us *= 10
        if self._clogged_until_us and way in self._clogged_until_us:
            delay_us += max(0, self._clogged_until_us[way] - self._world.now_us)
        if self._keeps_order:
            now_us = self._world.now_us
            arrival_us, last_arrival_us = now_us + delay_us, self._last_arrival_us.get(way, 0)
            if arrival_us < last_arrival_us:
                return last_arrival_us - now_us
            self._last_arrival_us[way] = arrival_us
        return delay_us

    def send(self, caller: Peer, send: Send) -> None:
        source, target = caller.node_id, send.destination
        if target < 0:
            target = self._anybody(caller)
            if target < 0:
                delay_us = self.delay_us((target, source))
                self._after(delay_us, caller.fail, RequestFailed(send.correlation, target, refused=True))
                return
        elif self._has_endpoints and not self._finds(caller, send):
            return
        way, draw = (source, target), self._draw
        if way in self._cuts or (self._loss and draw() * 1000.0 < self._loss):
            return
        inbound, after, arrive = Inbound(caller, send.correlation, send.request), self._after, self._arrive
        after(self.delay_us(way), arrive, inbound, target)
        if self._duplicates and draw() * 1000.0 < self._duplicates:
            after(self.delay_us(way), arrive, inbound, target)
        if self._replays and draw() * 1000.0 < self._replays:
            after(self._replay_us(), arrive, inbound, target)

    def _anybody(self, caller: Peer) -> int:
        """Return the node at one of the endpoints that the caller knows; -1: no node is there now.

        The caller knows the endpoints in its configuration, which are up to date, and the voters' endpoints in its log.
        """
        machines, voters = self._world.machines, caller.raft.voters
        others = [node_id for node_id in self._named if node_id != caller.node_id]
        left = 0
        if self._has_endpoints:
            left = sum(voter.endpoints != machines[voter.key.node_id].endpoints for voter in voters.voters)
        choice = int(self._random.random() * (len(others) + left))
        return others[choice] if choice < len(others) else -1

    def _finds(self, caller: Peer, send: Send) -> bool:
        """Return True if the caller knows the target's endpoint. A request without an endpoint fails at once, a request to an old
        endpoint after a delay.
        """
        target = send.destination
        endpoint = caller.raft.endpoints_of(target).get(LISTENER)
        if endpoint is not None and endpoint.port == self._world.machines[target].port:
            return True
        delay_us = 1 if endpoint is None else self.delay_us((target, caller.node_id))
        self._after(delay_us, caller.fail, RequestFailed(send.correlation, target, refused=endpoint is not None))
        return False

    def _arrive(self, inbound: Inbound, target: int) -> None:
        process = self._world.machines[target].process
        if process is not None:
            process.receive(inbound)
            return
        caller = inbound.caller
        way = (target, caller.node_id)
        if way not in self._cuts:
            self._after(self.delay_us(way), caller.fail, RequestFailed(inbound.correlation, target, refused=True))

    def reply(self, server: Peer, inbound: Inbound, response: Response) -> None:
        source, caller, draw = server.node_id, inbound.caller, self._draw
        way = (source, caller.node_id)
        if way in self._cuts or (self._response_loss and draw() * 1000.0 < self._response_loss):
            return
        answered, correlation, after = caller.answered, inbound.correlation, self._after
        after(self.delay_us(way), answered, correlation, source, response)
        if self._duplicates and draw() * 1000.0 < self._duplicates:
            after(self.delay_us(way), answered, correlation, source, response, True)
        if self._replays and draw() * 1000.0 < self._replays:
            after(self._replay_us(), answered, correlation, source, response, True)

    def _replay_us(self) -> int:
        """Return the delay after which a message is replayed; it can be after the next election."""
        return 100_000 + int(self._draw() * 3_000_000)

    def process_died(self, process: Peer) -> None:
        """Break the connections of a dead process. Some of the other ends notice."""
        for inbound in process.inbound.values():
            caller = inbound.caller
            way = (process.node_id, caller.node_id)
            if self._random.random() < 0.5 and way not in self._cuts:
                self._after(self.delay_us(way), caller.fail, RequestFailed(inbound.correlation, process.node_id))
        for machine in self._world.machines:
            server = machine.process
            if server is None or server is process:
                continue
            for token, inbound in server.inbound.items():
                if inbound.caller is process and self._random.random() < 0.5:
                    delay_us = self.delay_us((process.node_id, server.node_id))
                    self._after(delay_us, server.abandoned, RequestAbandoned(token))
