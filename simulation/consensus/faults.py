"""The faults that can strike a simulated cluster.

A fault is a decorated function that does something to the world. It draws everything, also the machine that it hits, from a
generator that is this strike's alone; it schedules its own end, and returns the nodes that it has hit. The fault phase bounds
faults in number and time, except for recoveries: otherwise nothing could be demanded of the cluster afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from random import Random
from typing import NamedTuple

from kraftlab.quorum.core.events import ResignAsked

from .cluster import Cluster
from .fault_atlas import damage, may_be_lost, targets
from .machine import Machine

Struck = tuple[int, ...]
"""The nodes that a strike has hit."""
Strike = Callable[[Cluster, Random], Struck]
StrikeMachine = Callable[[Cluster, Machine, Random], None]


class Fault(NamedTuple):
    """`mean_interval_ms` is the mean time between two strikes. A fault that `needs_process` does nothing to a node that is down.
    A fault that `keeps_pace` strikes as often in seeds whose faults are rare: it needs a leader to get anywhere.
    """

    mean_interval_ms: int
    strike: Strike
    needs_process: bool
    keeps_pace: bool


FAULTS: dict[str, Fault] = {}
"""By name, in the order in which seeds draw them."""


def fault(mean_interval_ms: int, *, needs_process: bool = True, keeps_pace: bool = False) -> Callable[[Strike], Strike]:
    """Add the decorated function to FAULTS, under the function's name."""

    def add(strike: Strike) -> Strike:
        FAULTS[strike.__name__.replace("_", "-")] = Fault(mean_interval_ms, strike, needs_process, keeps_pace)
        return strike

    return add


def on_machine(mean_interval_ms: int, *, needs_process: bool = True) -> Callable[[StrikeMachine], Strike]:
    """Add the decorated function to FAULTS as a fault of one machine, which is drawn first."""

    def add(strike_machine: StrikeMachine) -> Strike:
        @wraps(strike_machine)
        def strike(world: Cluster, random: Random) -> Struck:
            machine = _some_machine(world, random)
            strike_machine(world, machine, random)
            return (machine.node_id,)

        return fault(mean_interval_ms, needs_process=needs_process)(strike)

    return add


def _some_machine(world: Cluster, random: Random) -> Machine:
    """Draw a machine; in a third of the cases the leader's, where faults have most effects."""
    if random.random() < 0.33:
        for machine in world.machines:
            if machine.process is not None and machine.process.raft.is_leader:
                return machine
    return world.machines[random.randrange(len(world.machines))]


def _down_us(random: Random) -> int:
    return random.randint(20_000, 1_500_000)


@on_machine(1500)
def kill(world: Cluster, machine: Machine, random: Random) -> None:
    """A process dies; the page cache lives."""
    machine.crash(power_cut=False, reason="fault", down_us=_down_us(random))


@on_machine(1500)
def power_cut(world: Cluster, machine: Machine, random: Random) -> None:
    """A machine loses everything that was not synced, sector by sector."""
    machine.crash(power_cut=True, reason="fault", down_us=_down_us(random))


@fault(5000)
def power_cut_everywhere(world: Cluster, random: Random) -> Struck:
    """All machines lose power at once."""
    for machine in world.machines:
        machine.crash(power_cut=True, reason="everywhere", down_us=random.randint(1_000, 400_000))
    return tuple(machine.node_id for machine in world.machines)


@on_machine(1500)
def crash_between_effects(world: Cluster, machine: Machine, random: Random) -> None:
    """Power goes between two effects of one step."""
    if machine.process is not None:
        machine.process.crash_in_effects = random.randint(0, 30)


@on_machine(600)
def crash_in_flush(world: Cluster, machine: Machine, random: Random) -> None:
    """Power goes during the next flush, or the next flush of several sectors, which leaves a torn tail."""
    if machine.process is not None:
        machine.process.crash_in_flush_of_bytes = random.choice((0, 1_000, 3_000))


@on_machine(1000)
def crash_in_store(world: Cluster, machine: Machine, random: Random) -> None:
    """Power goes during the next store of an election state."""
    if machine.process is not None:
        machine.process.crash_in_store = True


@on_machine(3000)
def crash_in_recovery(world: Cluster, machine: Machine, random: Random) -> None:
    """Power goes, and again during the recovery."""
    machine.cut_at_boot = random.randint(0, 6)
    machine.crash(power_cut=True, reason="and its recovery will be cut short", down_us=_down_us(random))


@on_machine(2000)
def graceful_restart(world: Cluster, machine: Machine, random: Random) -> None:
    """A node is asked to stop, ends and comes back."""
    if machine.process is not None:
        machine.process.shut_down(random.randint(1_000, 80_000), random.randint(1_000, 500_000))


@on_machine(2000)
def resign(world: Cluster, machine: Machine, random: Random) -> None:
    """The leader is asked to resign."""
    if machine.process is not None:
        machine.process.step(ResignAsked(machine.process.quorum.epoch, "asked to"))


@on_machine(1500, needs_process=False)
def pause(world: Cluster, machine: Machine, random: Random) -> None:
    """A process stands still: a garbage collection, a SIGSTOP. The pause is long enough for the process to be deposed, or even to
    notice the pause by its clock. A pause within a pause never ends the longer one.
    """
    pause_us = random.choice((50_000, 300_000, 800_000, 1_500_000))
    machine.paused_until_us = max(machine.paused_until_us, world.now_us + pause_us)
    world.note(f"n{machine.node_id} stands still for {pause_us // 1000} ms")


@on_machine(1500, needs_process=False)
def slow_disk(world: Cluster, machine: Machine, random: Random) -> None:
    """A disk takes 5 or 50 times as long for a while."""
    world.disk_slowness[machine.node_id] = random.choice((5, 50))
    world.after(random.randint(100_000, 1_500_000), world.disk_slowness.pop, machine.node_id, None)


@on_machine(2500, needs_process=False)
def full_disk(world: Cluster, machine: Machine, random: Random) -> None:
    """A disk has no space left for a while."""
    machine.file_system.full = True
    world.after(random.randint(50_000, 1_000_000), setattr, machine.file_system, "full", False)


@on_machine(3000, needs_process=False)
def failed_fsync(world: Cluster, machine: Machine, random: Random) -> None:
    """The next fsync fails and takes the dirty pages with it; the process must end."""
    machine.file_system.fsync_fails = True


@on_machine(3000, needs_process=False)
def failing_disk(world: Cluster, machine: Machine, random: Random) -> None:
    """Every operation of a disk fails for a while: the process ends at the next operation, and does not come up meanwhile."""
    machine.file_system.broken = True
    world.after(random.randint(100_000, 1_500_000), setattr, machine.file_system, "broken", False)


@on_machine(3000, needs_process=False)
def refused_names(world: Cluster, machine: Machine, random: Random) -> None:
    """Renames and removals fail for a while, writes do not: a directory whose permissions were changed."""
    machine.file_system.refuses_names = True
    world.after(random.randint(100_000, 1_500_000), setattr, machine.file_system, "refuses_names", False)


@on_machine(1500, needs_process=False)
def clock_jump(world: Cluster, machine: Machine, random: Random) -> None:
    """A clock jumps forward, beyond all timers: a virtual machine that was suspended."""
    jump_ms = random.choice((100, 700, 3_000, 60_000))
    world.note(f"the clock of n{machine.node_id} jumps by {jump_ms} ms")
    machine.set_clock(jump_ms=jump_ms)


@on_machine(1500, needs_process=False)
def clock_rate(world: Cluster, machine: Machine, random: Random) -> None:
    """A clock runs at half speed, or twice as fast, for a while."""
    rate = random.choice((500, 700, 1_500, 2_000))
    world.note(f"the clock of n{machine.node_id} runs at {rate} thousandths of its speed")
    machine.set_clock(rate=rate)
    world.after(random.randint(200_000, 2_000_000), machine.set_clock)


@fault(1500, needs_process=False)
def partition(world: Cluster, random: Random) -> Struck:
    """The nodes fall into two groups that do not hear each other."""
    ids = [machine.node_id for machine in world.machines]
    random.shuffle(ids)
    at = random.randrange(1, len(ids)) if len(ids) > 1 else 1
    pairs = [(a, b) for a in ids[:at] for b in ids[at:]]
    cut_links(world, pairs + [(b, a) for a, b in pairs], random.randint(100_000, 2_500_000))
    return tuple(ids[at:])


@on_machine(1500, needs_process=False)
def isolate(world: Cluster, machine: Machine, random: Random) -> None:
    """One node hears no other, or no other hears it, or both."""
    node_id = machine.node_id
    others = [other.node_id for other in world.machines if other is not machine]
    mode = random.choice(("hears nobody", "is heard by nobody", "both"))
    pairs = [(other, node_id) for other in others] if mode != "is heard by nobody" else []
    pairs += [(node_id, other) for other in others] if mode != "hears nobody" else []
    cut_links(world, pairs, random.randint(100_000, 2_500_000))


@fault(1000, needs_process=False)
def clog(world: Cluster, random: Random) -> Struck:
    """One node hears everything late, or is heard late. The delay is mostly longer than a fetch timeout and shorter than a leader
    takes to notice: messages from before an election arrive after it.
    """
    leading = [m.node_id for m in world.machines if m.process is not None and m.process.raft.is_leader]
    node_id = random.choice(leading) if leading and random.random() < 0.8 else _some_machine(world, random).node_id
    duration_us = random.choice((100_000, 760_000, 800_000, 830_000, 860_000, 890_000))
    is_deaf = random.random() < 0.7
    world.note(f"what n{node_id} {'is sent' if is_deaf else 'sends'} is held for {duration_us // 1000} ms")
    for other in world.machines:
        source, target = (other.node_id, node_id) if is_deaf else (node_id, other.node_id)
        world.network.clog(source, target, world.now_us + duration_us)
    return (node_id,)


@fault(1500, needs_process=False)
def broken_link(world: Cluster, random: Random) -> Struck:
    """Two nodes do not hear each other, all others hear both: the chain that pre-votes alone do not fix."""
    if len(world.machines) < 2:
        return ()
    a, b = random.sample([machine.node_id for machine in world.machines], 2)
    cut_links(world, [(a, b), (b, a)] if random.random() < 0.5 else [(a, b)], random.randint(100_000, 3_000_000))
    return (a, b)


@fault(700, keeps_pace=True)
def take_snapshot(world: Cluster, random: Random) -> Struck:
    """Some nodes take a snapshot now."""
    count = random.randint(1, len(world.machines))
    chosen = [machine for machine in random.sample(world.machines, count) if machine.process is not None]
    for machine in chosen:
        if machine.process is not None and machine.paused_until_us <= world.now_us:
            machine.process.snapshots.take()
    return tuple(machine.node_id for machine in chosen)


@fault(300, needs_process=False, keeps_pace=True)
def add_voter(world: Cluster, random: Random) -> Struck:
    """A node that does not vote is to become a voter. If all nodes vote, the request is one that must be refused."""
    voters = world.newest_voters()
    others = [machine for machine in world.machines if not voters.has(machine.key) and machine.process is not None]
    machine = random.choice(others) if others else _some_machine(world, random)
    world.operators.add(machine, world.operators.timeout_ms(random))
    return (machine.node_id,)


@fault(700, needs_process=False, keeps_pace=True)
def remove_voter(world: Cluster, random: Random) -> Struck:
    """A voter is to be a voter no longer; often the leader."""
    keys = [voter.key for voter in world.newest_voters().voters]
    leading = [process.key for process in world.leaders if process.key in keys]
    key = random.choice(leading) if leading and random.random() < 0.4 else random.choice(keys)
    world.operators.remove(key, world.operators.timeout_ms(random))
    return (key.node_id,)


@fault(1500, keeps_pace=True)
def hasty_change(world: Cluster, random: Random) -> Struck:
    """The next leader is asked to remove a voter before it has committed anything; every second time there is one soon."""
    world.operators.be_hasty()
    return resign(world, random) if random.random() < 0.5 else ()


@fault(1200, needs_process=False, keeps_pace=True)
def transfer_leadership(world: Cluster, random: Random) -> Struck:
    """A voter is to lead."""
    key = random.choice(world.newest_voters().voters).key
    world.operators.transfer(key, world.operators.timeout_ms(random))
    return (key.node_id,)


@fault(2500, needs_process=False)
def replace_disk(world: Cluster, random: Random) -> Struck:
    """A disk is gone. The machine comes back with an empty disk, which makes it another replica."""
    machine = _some_machine(world, random)
    former = machine.key
    if world.static_voters.has(former) or not may_be_lost(world, machine):
        return ()
    machine.wipe("fault")
    world.after(_down_us(random), machine.boot)
    if world.newest_voters().has(former):
        world.after(_down_us(random), world.operators.follow_up, machine, former)
    return (machine.node_id,)


@fault(2500, needs_process=False)
def move_node(world: Cluster, random: Random) -> Struck:
    """A node comes back at another address than the one in its voter entry. One node at a time."""
    machine = _some_machine(world, random)
    voters = world.newest_voters().voters
    if any(voter.endpoints != world.machines[voter.key.node_id].endpoints for voter in voters) or not world.leaders:
        return ()
    machine.crash(power_cut=False, reason="moves", down_us=_down_us(random))
    machine.port += 1
    return (machine.node_id,)


@fault(1200, needs_process=False, keeps_pace=True)
def rot(world: Cluster, random: Random) -> Struck:
    """Bits flip in old data of a disk: committed batches, a snapshot, the election state."""
    machine = _some_machine(world, random)
    if machine.rot is not None or machine.is_gone or not may_be_lost(world, machine):
        return ()
    found = targets(world, machine)
    if not found:
        return ()
    is_fatal = random.random() < 0.15
    kinds = sorted({target.path.rpartition(".")[2] for target in found if target.is_fatal == is_fatal})
    if not kinds:
        return ()
    kind = random.choice(kinds)
    target = random.choice([target for target in found if target.path.rpartition(".")[2] == kind])
    world.note(f"rot on n{machine.node_id}: {target}")
    damage(machine, target, random)
    if random.random() < 0.7:
        machine.crash(power_cut=random.random() < 0.5, reason="and starts on what has rotted", down_us=_down_us(random))
    return (machine.node_id,)


def cut_links(world: Cluster, pairs: list[tuple[int, int]], duration_us: int) -> None:
    world.note(f"cut {' '.join(f'{a}>{b}' for a, b in pairs)} for {duration_us // 1000} ms")
    for a, b in pairs:
        world.network.cut(a, b)
        world.after(duration_us, world.network.restore, a, b)
