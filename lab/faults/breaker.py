"""Executes orders on a local cluster.

`ORDERS` is the table of orders: the number of groups of names, the further fields, and the method. Everything that blocks
happens in the thread that gave the order; one order is executed at a time. An order with a time is undone by a timer of this
process, whether or not the command that gave the order still runs.
"""

from __future__ import annotations

import itertools
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.config.directories import named_directory
from kraftlab.config.errors import ConfigError

from ..cluster_plan import ClusterError
from ..links.shape import PLAIN, LinkShape
from ..processes import exit_text
from . import full_disk
from .active_faults import ActiveFaults, InForce
from .holds import CUT, DARK, DOWN, FAILED, FULL, LINK_FAULTS, LOSSY, NODE_FAULTS, OFF, PAUSED, SLOW, WRONG_CLOCK, Fault, Link
from .names import leader_of, resolve
from .orders import Done, LinkState, NodeState, Order, OrderState, Status

if TYPE_CHECKING:
    from ..local import LocalCluster

LEADER_TIMEOUT_MS = 2_000
"""For each running controller; a busy machine may take long to ask them all at once."""

Group = tuple[int, ...]
Links = list[Link]


class Breaker:
    """Breaks `cluster` as ordered, and heals it. Thread-safe. `notify` gets a line when an order ends by itself."""

    def __init__(self, cluster: LocalCluster, notify: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._notify = notify
        self._faults = ActiveFaults(cluster)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._timers: dict[int, threading.Timer] = {}
        self._closed = False

    def carry_out(self, order: Order) -> Done:
        """Execute an order. ClusterError if it is invalid or fails: then nothing was done."""
        kind = checked(order)
        with self._lock:
            if self._closed:
                raise ClusterError("the cluster is stopping")
            groups = tuple(resolve(self._cluster.plan, names, self.leader) for names in order.names)
            return kind.carry_out(self, msgspec.structs.replace(order, names=tuple(map(self._each, groups))), groups)

    def undo(self, number: int, *, drop: bool = False) -> None:
        """End the order with that number, if it is in force; messages that its cuts held come late, or are lost with `drop`."""
        with self._lock:
            self._undo_order(number, drop)

    def _undo_order(self, number: int, drop: bool) -> list[InForce]:
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()
        over = [order for order in self._faults.orders if order.number == number]
        self._faults.end(over, drop=drop)
        return over

    def close(self) -> None:
        """Undo the orders in force, without starting nodes that are down: the cluster is about to stop."""
        with self._lock:
            self._closed = True
            for timer in self._timers.values():
                timer.cancel()
            self._faults.forget({fault for fault in self._faults.holds if fault.kind not in OFF})

    # -- orders that stay in force ---------------------------------------------------------------------------------------

    def cut(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Cut links between two groups, or between one and all others."""
        links = self._links(order, groups)
        how = self._cluster.what_cuts_do(reset=order.reset)
        return self._of_links(order, f"cut {self._shown(order, groups)}: {how}", CUT, links)

    def slow(self, order: Order, groups: tuple[Group, ...]) -> Done:
        shape = _shape(delay_ms=order.delay_ms, jitter_ms=order.jitter_ms)
        jitter = f" and up to {order.jitter_ms:g} ms more" if order.jitter_ms else ""
        text = f"slow {self._shown(order, groups)}: {order.delay_ms:g} ms{jitter}"
        return self._of_links(order, text, SLOW, self._links(order, groups), shape)

    def lossy(self, order: Order, groups: tuple[Group, ...]) -> Done:
        shape = _shape(loss=order.loss, duplicate=order.duplicate, reorder=order.reorder)
        chances = {"lost": order.loss, "doubled": order.duplicate, "reordered": order.reorder}
        parts = ", ".join(f"{100 * chance:g}% {what}" for what, chance in chances.items() if chance)
        text = f"lossy {self._shown(order, groups)}: {parts}"
        return self._of_links(order, text, LOSSY, self._links(order, groups), shape)

    def partition(self, order: Order, groups: tuple[Group, ...]) -> Done:
        links: Links = []
        for one, other in itertools.permutations(groups, 2):
            if both := set(one).intersection(other):
                raise ClusterError(f"{self._names(sorted(both))}: on two sides of the partition; name each node only once")
            links += self._between(one, other)
        shown = " | ".join(self._names(group) for group in groups)
        return self._of_links(order, f"partition {shown}: {self._cluster.what_cuts_do()}", CUT, links)

    def kill(self, order: Order, groups: tuple[Group, ...]) -> Done:
        return self._of_nodes(order, groups[0], "killed (kill -9)", DOWN)

    def power_loss(self, order: Order, groups: tuple[Group, ...]) -> Done:
        return self._of_nodes(order, groups[0], "without power: what their disks had not synced is lost", DARK)

    def pause(self, order: Order, groups: tuple[Group, ...]) -> Done:
        return self._of_nodes(order, self._running(groups[0]), "paused (SIGSTOP)", PAUSED)

    def fail_disk(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Let every file call in a log directory of each node fail."""
        return self._of_directories(order, groups[0], "I/O errors in", FAILED)

    def fill_disk(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Take the space of a log directory of each node, or of everything that the nodes write."""
        if order.directory:
            return self._of_directories(order, groups[0], "no space in", FULL)
        return self._of_nodes(order, self._running(groups[0]), "no space on its disks", FULL)

    def clock(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Let clocks run at another rate while the order is in force."""
        return self._of_nodes(order, groups[0], f"clocks run at {order.rate:g} times the rate", WRONG_CLOCK)

    def _of_nodes(self, order: Order, nodes: Group, what: str, kind: str) -> Done:
        return self._put_in_force(order, f"{self._names(nodes)}: {what}", [Fault(kind, node_id) for node_id in nodes])

    def _of_directories(self, order: Order, nodes: Group, what: str, kind: str) -> Done:
        """Let one log directory of each node have a fault."""
        faults = [Fault(kind, node_id, directory=self._directory(node_id, order.directory)) for node_id in nodes]
        text = "; ".join(f"{self._names([fault.node])}: {what} {fault.directory}" for fault in faults)
        return self._put_in_force(order, text, faults)

    def _of_links(self, order: Order, text: str, kind: str, links: Links, shape: LinkShape = PLAIN) -> Done:
        return self._put_in_force(order, text, [Fault(kind, *link) for link in links], shape)

    def _put_in_force(self, order: Order, text: str, faults: Sequence[Fault], shape: LinkShape = PLAIN) -> Done:
        """Put an order in force, and start its timer."""
        number = next(self._numbers)
        until = None if order.for_ms is None else time.monotonic() + order.for_ms / 1000
        in_force = InForce(
            number=number,
            text=text,
            shape=shape,
            reset=order.reset,
            rate=order.rate,
            until=until,
            order=order.order,
            groups=order.names,
            directory=order.directory,
            begun_ms=time.time_ns() // 1_000_000,
        )
        self._faults.add(in_force, faults)
        if order.for_ms is not None:
            self._timers[number] = timer = threading.Timer(order.for_ms / 1000, self._expire, (number, order.drop))
            timer.daemon = True
            timer.start()
        name = self._cluster.node
        return Done(
            text,
            number,
            nodes=tuple(name(fault.node).name for fault in faults if fault.other is None),
            directories=tuple(fault.directory for fault in faults if fault.directory),
            next_steps=self._next_steps(faults),
            links=tuple((name(fault.node).name, name(fault.other).name) for fault in faults if fault.other is not None),
            undone_after_ms=order.for_ms,
        )

    def _next_steps(self, faults: Iterable[Fault]) -> tuple[str, ...]:
        """Return what a person has to do once these faults are over: a broker does not take a directory back by itself."""
        lines = []
        for fault in sorted({fault for fault in faults if fault.kind == FAILED}):
            name, online = self._names([fault.node]), f"log-dirs --online {shlex.quote(fault.directory)} --broker {fault.node}"
            lines.append(f"then {name} keeps the directory offline until: kraftlab {online}, or: kraftlab cluster restart {name}")
        return tuple(lines)

    def _expire(self, number: int, drop: bool) -> None:
        with self._lock:
            self._timers.pop(number, None)
            over = [order for order in self._faults.orders if order.number == number and not self._closed]
            held = {fault for order in over for fault in self._faults.holds.held_by(order)}
            try:
                self._faults.end(over, drop=drop)
            except Exception as error:
                self._notify(f"could not undo order {number}: {error}")
                return
            steps = self._next_steps(held.difference(self._faults.holds))
        for line in (*(f"undone: {order.text}" for order in over), *steps):
            self._notify(line)

    # -- orders that are over at once ------------------------------------------------------------------------------------

    def heal(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Undo everything, the faults of one group, those of the links between two groups, or one order."""
        if order.number:
            return self._heal_order(order, groups)
        everything = self._faults.of((*LINK_FAULTS, *NODE_FAULTS), self._cluster.controller_ids + self._cluster.broker_ids)
        if len(groups) == 2:
            between = {*self._between(*groups), *([] if order.one_way else self._between(*reversed(groups)))}
            healed = {fault for fault in everything if fault.other is not None and fault.link in between}
        elif groups:
            healed = {fault for fault in everything if fault.concerns(groups[0])}
        else:
            healed = everything
        concerned = [in_force for in_force in self._faults.orders if self._faults.holds.held_by(in_force) & healed]
        self._faults.forget(healed, drop=order.drop)
        still = {in_force.number for in_force in self._faults.orders}
        outcomes = {True: "still in force elsewhere", False: "over"}
        said = "; ".join(f"#{one.number} {one.text} ({outcomes[one.number in still]})" for one in concerned)
        text = f"healed {self._shown(order, groups) if groups else 'everything'}: {said or 'nothing was broken'}"
        return Done(text, next_steps=self._next_steps(healed))

    def _heal_order(self, order: Order, groups: tuple[Group, ...]) -> Done:
        if groups:
            raise ClusterError("heal either an order or nodes; leave one of them out")
        held = {fault for one in self._faults.orders if one.number == order.number for fault in self._faults.holds.held_by(one)}
        over = self._undo_order(order.number, order.drop)
        if not over:
            raise ClusterError(f"order #{order.number} is not in force; see: kraftlab cluster status")
        return Done(f"healed: #{order.number} {over[0].text}", next_steps=self._next_steps(held.difference(self._faults.holds)))

    def resume(self, order: Order, groups: tuple[Group, ...]) -> Done:
        return self._undo((PAUSED,), groups[0], "resumed", "paused")

    def free_disk(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Give nodes their space back, or only one log directory of each."""
        if not order.directory:
            return self._undo((FULL,), groups[0], "has space on its disks", "without space")
        named = {self._directory(node_id, order.directory) for node_id in groups[0]}
        return self._undo((FULL,), groups[0], f"has space in {order.directory}", f"without space in {order.directory}", named)

    def _undo(
        self, kinds: tuple[str, ...], nodes: Group, what: str, otherwise: str, directories: Collection[str] | None = None
    ) -> Done:
        faults = self._faults.of(kinds, nodes)
        if directories is not None:
            faults = {fault for fault in faults if fault.directory in directories}
        if not faults:
            raise ClusterError(f"{self._names(nodes)}: not {otherwise}; see: kraftlab cluster status")
        self._faults.forget(faults)
        broken = tuple(sorted({fault.node for fault in faults}))
        return Done(f"{self._names(broken)}: {what}", nodes=tuple(self._cluster.node(node_id).name for node_id in broken))

    def clock_jump(self, order: Order, groups: tuple[Group, ...]) -> Done:
        for clock in [self._cluster.clock(node_id) for node_id in groups[0]]:
            clock.jump(order.jump_ms / 1000)
        names = tuple(self._cluster.node(node_id).name for node_id in groups[0])
        return Done(f"{self._names(groups[0])}: clocks have jumped {order.jump_ms / 1000:g} s ahead", nodes=names)

    def restart(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Stop the running nodes in a controlled way and start all; their faults are over. Brokers stop first, and hand over
        their leaderships while controllers run.
        """
        nodes = groups[0]
        for node_id in sorted(nodes, key=self._cluster.controller_ids.__contains__):
            if self._cluster.pid(node_id) is not None:
                self._cluster.resume_node(node_id)
                self._cluster.stop_node(node_id)
        self._faults.forget({*self._faults.of(NODE_FAULTS, nodes), *(Fault(DOWN, node_id) for node_id in nodes)})
        return Done(f"{self._names(nodes)}: started again", nodes=tuple(self._cluster.node(node_id).name for node_id in nodes))

    def status(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Report the state of nodes, orders, links and the cluster."""
        seen = self._seen(self.leader())
        seen = msgspec.structs.replace(seen, in_doubt=self._cluster.in_doubt(), health=self._cluster.health())
        return Done("the cluster's state", status=seen)

    def faults(self, order: Order, groups: tuple[Group, ...]) -> Done:
        """Report the state of nodes, orders and links, without asking the cluster: neither its leader nor its health."""
        return Done("the faults in force", status=self._seen(None))

    def _seen(self, leader: int | None) -> Status:
        name = self._cluster.node
        ended = {node_id: exit_text(code) for node_id, code in self._cluster.exited().items()}
        nodes = tuple(
            NodeState(
                node.name,
                self._cluster.pid(node.node_id),
                self._state(node.node_id),
                node.node_id == leader,
                ended.get(node.node_id, ""),
            )
            for node in self._cluster.plan.nodes
        )
        links = tuple(
            LinkState(
                name(link.source).name,
                name(link.target).name,
                link.cut,
                **{field: getattr(link.shape, field) for field in link.shape.__struct_fields__},
                waiting_bytes=link.waiting_bytes,
            )
            for link in self._cluster.links_status()
        )
        return Status(
            nodes,
            tuple(map(self._shown_order, self._faults.orders)),
            links,
            past=tuple(map(self._shown_order, self._faults.past)),
        )

    def _shown_order(self, one: InForce) -> OrderState:
        left_ms = None if one.until is None or one.ended_ms else max(0, round(1000 * (one.until - time.monotonic())))
        held = self._faults.holds.held_by(one)
        nodes = sorted({node_id for fault in held for node_id in (fault.node, fault.other) if node_id is not None})
        return OrderState(
            *(one.number, one.text, left_ms, one.order, one.groups, self._each(nodes)),
            directory=one.directory,
            begun_ms=one.begun_ms,
            ended_ms=one.ended_ms,
        )

    def in_force(self) -> Counter[str]:
        """Return the number of faults in force, by kind."""
        with self._lock:
            return Counter(fault.kind for fault in self._faults.holds)

    # -- helpers ---------------------------------------------------------------------------------------------------------

    def _state(self, node_id: int) -> str:
        pid = self._cluster.pid(node_id)
        if pid is None:
            return "dark" if Fault(DARK, node_id) in self._faults.holds else "down"
        if Fault(PAUSED, node_id) in self._faults.holds:
            return "paused"
        return "full" if full_disk.is_full(pid) else "running"

    def _links(self, order: Order, groups: tuple[Group, ...]) -> Links:
        """Links from one group to another, or to all other nodes; and back, unless the order is one-way."""
        everybody = (*self._cluster.controller_ids, *self._cluster.broker_ids)
        source, target = groups[0], groups[1] if len(groups) == 2 else everybody
        links = dict.fromkeys(self._between(source, target))
        if not order.one_way:
            links |= dict.fromkeys(self._between(target, source))
        if not links:
            raise ClusterError(f"there is no link from {self._names(source)} to itself; name two nodes")
        return list(links)

    def _between(self, source: Iterable[int], target: Iterable[int]) -> Links:
        return [pair for pair in itertools.product(source, target) if pair[0] != pair[1]]

    def _running(self, nodes: Group) -> Group:
        running = tuple(node_id for node_id in nodes if self._cluster.pid(node_id) is not None)
        if not running:
            raise ClusterError(f"{self._names(nodes)}: down; start it with: kraftlab cluster restart {self._names(nodes)}")
        return running

    def _directory(self, node_id: int, name: str) -> str:
        """Return the path of the log directory of that name. ClusterError."""
        log_dirs = [str(path) for path in self._cluster.log_dirs(node_id)]
        if not log_dirs:
            raise ClusterError(f"{self._names([node_id])} has no log directories; name brokers")
        try:
            return named_directory(log_dirs, name)
        except ConfigError as error:
            raise ClusterError(f"{self._names([node_id])}: {error}") from None

    def _each(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._cluster.node(node_id).name for node_id in nodes)

    def _names(self, nodes: Iterable[int]) -> str:
        return ",".join(self._each(nodes))

    def _shown(self, order: Order, groups: tuple[Group, ...]) -> str:
        other = self._names(groups[1]) if len(groups) == 2 else "all others"
        return f"{self._names(groups[0])} {'→' if order.one_way else '↔'} {other}"

    def leader(self) -> int | None:
        """Ask every running controller: one that is cut off still names a former leader."""
        with self._cluster.admin(timeout_ms=LEADER_TIMEOUT_MS) as admin, ThreadPoolExecutor() as pool:
            asked = [node_id for node_id in self._cluster.controller_ids if self._state(node_id) in ("running", "full")]
            return leader_of(pool.map(lambda node_id: self._ask_who_leads(admin, node_id), asked))

    def _ask_who_leads(self, admin: AdminClient, node_id: int) -> tuple[int, int]:
        """Return the leader and its epoch as a controller knows them. The call needs no right."""
        endpoint = self._cluster.node(node_id).grpc
        try:
            answer = admin.call_at(
                endpoint, pb.DescribeClusterResponse, pb.DescribeClusterRequest(), timeout_ms=LEADER_TIMEOUT_MS
            )
        except (ApiError, ClusterUnreachable):
            return -1, -1
        return answer.header.leader_id, answer.header.epoch


def _shape(**amounts: float) -> LinkShape:
    if not any(amounts.values()):
        raise ClusterError(f"{' and '.join(amounts)}: all are 0; give one of them a value")
    try:
        return LinkShape(**amounts)
    except ValueError as error:
        raise ClusterError(str(error)) from None


class Kind(NamedTuple):
    """`least` to `most` groups of names, described by `takes`. `fields`: the further fields that belong to the order. `stays`: in
    force until it is undone.
    """

    carry_out: Callable[[Breaker, Order, tuple[Group, ...]], Done]
    least: int
    most: int
    takes: str
    fields: tuple[str, ...] = ()
    stays: bool = True


_PLAIN = Order("")
FIELDS = tuple(field for field in Order.__struct_fields__ if field not in ("order", "names", "for_ms"))
ONE, TWO, ONE_OR_TWO = "one group of names", "two groups of names", "one group of names or two"
CUT_FIELDS = ("one_way", "reset", "drop")
LOSSY_FIELDS = ("loss", "duplicate", "reorder", "one_way")

ORDERS: dict[str, Kind] = {
    "cut": Kind(Breaker.cut, 2, 2, TWO, CUT_FIELDS),
    "isolate": Kind(Breaker.cut, 1, 1, ONE, CUT_FIELDS),
    "partition": Kind(Breaker.partition, 2, 99, "two groups of names or more", ("drop",)),
    "slow": Kind(Breaker.slow, 1, 2, ONE_OR_TWO, ("delay_ms", "jitter_ms", "one_way")),
    "lossy": Kind(Breaker.lossy, 1, 2, ONE_OR_TWO, LOSSY_FIELDS),
    "kill": Kind(Breaker.kill, 1, 1, ONE),
    "power-loss": Kind(Breaker.power_loss, 1, 1, ONE),
    "pause": Kind(Breaker.pause, 1, 1, ONE),
    "fail-disk": Kind(Breaker.fail_disk, 1, 1, ONE, ("directory",)),
    "fill-disk": Kind(Breaker.fill_disk, 1, 1, ONE, ("directory",)),
    "clock": Kind(Breaker.clock, 1, 1, ONE, ("rate",)),
    "clock-jump": Kind(Breaker.clock_jump, 1, 1, ONE, ("jump_ms",), stays=False),
    "heal": Kind(Breaker.heal, 0, 2, "no names, or one group, or two", ("one_way", "drop", "number"), stays=False),
    "resume": Kind(Breaker.resume, 1, 1, ONE, stays=False),
    "free-disk": Kind(Breaker.free_disk, 1, 1, ONE, ("directory",), stays=False),
    "restart": Kind(Breaker.restart, 1, 1, ONE, stays=False),
    "status": Kind(Breaker.status, 0, 0, "no names", stays=False),
    "faults": Kind(Breaker.faults, 0, 0, "no names", stays=False),
}


def checked(order: Order) -> Kind:
    """Return the row of an order. ClusterError if there is none, or if names or fields do not belong to it."""
    kind = ORDERS.get(order.order)
    if kind is None:
        raise ClusterError(f"there is no order {order.order!r}; there are {', '.join(ORDERS)}")
    if not kind.least <= len(order.names) <= kind.most:
        raise ClusterError(f"{order.order} takes {kind.takes}, not {len(order.names)}")
    if order.for_ms is not None and (not kind.stays or not 0 < order.for_ms <= 86_400_000):
        raise ClusterError(
            f"{order.order} for {order.for_ms:g} ms: expected more than 0 and at most a day"
            if kind.stays
            else f"--for does not apply to {order.order}, which has no duration"
        )
    given = {field for field in FIELDS if getattr(order, field) != getattr(_PLAIN, field)}
    if strange := sorted(given.difference(kind.fields)):
        has = f"it has {', '.join(kind.fields)}" if kind.fields else "it has none"
        raise ClusterError(f"{', '.join(strange)} does not apply to {order.order}; {has}")
    return kind
