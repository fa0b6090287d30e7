"""The faults that can strike a simulated cluster, as data.

A fault is a name, how often it strikes where it is enabled, and a function that does it to the world, drawing from a generator
that is this strike's alone, and tells whom it struck. It arranges its own end. Perturbations are bounded in number and time by
the fault phase; recoveries are not, or nothing could be demanded of the cluster afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kraftlab.quorum.core.events import ResignAsked

from .cluster import Cluster
from .fault_atlas import damage, may_be_lost, targets
from .machine import Machine

Struck = tuple[int, ...]
"""The nodes that a strike has hit."""


class Fault(NamedTuple):
    """`mean_interval_ms` between two strikes; `about` says what happens."""

    name: str
    mean_interval_ms: int
    strike: Callable[[Cluster, Random], Struck]
    about: str
    needs_process: bool = True
    """A node that is down can not be struck: nothing happens."""
    keeps_pace: bool = False
    """Strikes as often in seeds whose faults are rare: what needs a leader to get anywhere."""


def _some_machine(world: Cluster, random: Random) -> Machine:
    """Any machine, but every third time the one that leads: that is where it hurts."""
    if random.random() < 0.33:
        for machine in world.machines:
            if machine.process is not None and machine.process.raft.is_leader:
                return machine
    return world.machines[random.randrange(len(world.machines))]


def _down_us(random: Random) -> int:
    return random.randint(20_000, 1_500_000)


def kill(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    machine.crash(power_cut=False, reason="fault", down_us=_down_us(random))
    return (machine.node_id,)


def power_cut(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    machine.crash(power_cut=True, reason="fault", down_us=_down_us(random))
    return (machine.node_id,)


def power_cut_everywhere(world: Cluster, random: Random) -> Struck:
    for machine in world.machines:
        machine.crash(power_cut=True, reason="everywhere", down_us=random.randint(1_000, 400_000))
    return tuple(machine.node_id for machine in world.machines)


def crash_between_effects(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    if machine.process is not None:
        machine.process.crash_in_effects = random.randint(0, 30)
    return (machine.node_id,)


def crash_in_flush(world: Cluster, random: Random) -> Struck:
    """At its next flush, or the next that writes several sectors: what is half-way to the disk then may be torn."""
    machine = _some_machine(world, random)
    if machine.process is not None:
        machine.process.crash_in_flush_of_bytes = random.choice((0, 1_000, 3_000))
    return (machine.node_id,)


def crash_in_store(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    if machine.process is not None:
        machine.process.crash_in_store = True
    return (machine.node_id,)


def crash_in_recovery(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    machine.cut_at_boot = random.randint(0, 6)
    machine.crash(power_cut=True, reason="and its recovery will be cut short", down_us=_down_us(random))
    return (machine.node_id,)


def graceful_restart(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    if machine.process is not None:
        machine.process.shut_down(random.randint(1_000, 80_000), random.randint(1_000, 500_000))
    return (machine.node_id,)


def resign(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    if machine.process is not None:
        machine.process.step(ResignAsked(machine.process.quorum.epoch, "asked to"))
    return (machine.node_id,)


def pause(world: Cluster, random: Random) -> Struck:
    """The process stands still: a garbage collection, a SIGSTOP. Long enough to be deposed, or even to notice it by the clock.
    Who stands still already goes on no earlier for that.
    """
    machine = _some_machine(world, random)
    pause_us = random.choice((50_000, 300_000, 800_000, 1_500_000))
    machine.paused_until_us = max(machine.paused_until_us, world.now_us + pause_us)
    world.note(f"n{machine.node_id} stands still for {pause_us // 1000} ms")
    return (machine.node_id,)


def slow_disk(world: Cluster, random: Random) -> Struck:
    node_id = _some_machine(world, random).node_id
    world.disk_slowness[node_id] = random.choice((5, 50))
    world.after(random.randint(100_000, 1_500_000), world.disk_slowness.pop, node_id, None)
    return (node_id,)


def full_disk(world: Cluster, random: Random) -> Struck:
    machine = _some_machine(world, random)
    machine.file_system.full = True
    world.after(random.randint(50_000, 1_000_000), setattr, machine.file_system, "full", False)
    return (machine.node_id,)


def failed_fsync(world: Cluster, random: Random) -> Struck:
    """The next fsync fails; the process must end of it."""
    machine = _some_machine(world, random)
    machine.file_system.fsync_fails = True
    return (machine.node_id,)


def failing_disk(world: Cluster, random: Random) -> Struck:
    """Every operation fails: the process ends at the next one, and does not come up while it lasts."""
    machine = _some_machine(world, random)
    machine.file_system.broken = True
    world.after(random.randint(100_000, 1_500_000), setattr, machine.file_system, "broken", False)
    return (machine.node_id,)


def refused_names(world: Cluster, random: Random) -> Struck:
    """Renames and removals fail, writes do not: a directory whose permissions were changed."""
    machine = _some_machine(world, random)
    machine.file_system.refuses_names = True
    world.after(random.randint(100_000, 1_500_000), setattr, machine.file_system, "refuses_names", False)
    return (machine.node_id,)


def clock_jump(world: Cluster, random: Random) -> Struck:
    """A virtual machine that was suspended: the clock is further than all timers thought."""
    machine = _some_machine(world, random)
    jump_ms = random.choice((100, 700, 3_000, 60_000))
    world.note(f"the clock of n{machine.node_id} jumps by {jump_ms} ms")
    machine.set_clock(jump_ms=jump_ms)
    return (machine.node_id,)


def clock_rate(world: Cluster, random: Random) -> Struck:
    """A clock that runs at half speed, or twice as fast, for a while."""
    machine = _some_machine(world, random)
    rate = random.choice((500, 700, 1_500, 2_000))
    world.note(f"the clock of n{machine.node_id} runs at {rate} thousandths of its speed")
    machine.set_clock(rate=rate)
    world.after(random.randint(200_000, 2_000_000), machine.set_clock)
    return (machine.node_id,)


def partition(world: Cluster, random: Random) -> Struck:
    """The nodes fall into two groups that do not hear each other."""
    ids = [machine.node_id for machine in world.machines]
    random.shuffle(ids)
    at = random.randrange(1, len(ids)) if len(ids) > 1 else 1
    pairs = [(a, b) for a in ids[:at] for b in ids[at:]]
    cut_links(world, pairs + [(b, a) for a, b in pairs], random.randint(100_000, 2_500_000))
    return tuple(ids[at:])


def isolate(world: Cluster, random: Random) -> Struck:
    """One node hears nobody, or is heard by nobody, or both."""
    node_id = _some_machine(world, random).node_id
    others = [machine.node_id for machine in world.machines if machine.node_id != node_id]
    mode = random.choice(("hears nobody", "is heard by nobody", "both"))
    pairs = [(other, node_id) for other in others] if mode != "is heard by nobody" else []
    pairs += [(node_id, other) for other in others] if mode != "hears nobody" else []
    cut_links(world, pairs, random.randint(100_000, 2_500_000))
    return (node_id,)


def broken_link(world: Cluster, random: Random) -> Struck:
    """Two nodes do not hear each other, everybody else hears both: the chain that pre-votes alone do not mend."""
    if len(world.machines) < 2:
        return ()
    a, b = random.sample([machine.node_id for machine in world.machines], 2)
    cut_links(world, [(a, b), (b, a)] if random.random() < 0.5 else [(a, b)], random.randint(100_000, 3_000_000))
    return (a, b)


def clog(world: Cluster, random: Random) -> Struck:
    """One node hears everything late, or is heard late. Mostly for longer than a fetch timeout and shorter than a leader takes
    to notice: what was sent before an election arrives behind it.
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


def add_voter(world: Cluster, random: Random) -> Struck:
    """Some node that does not vote is to vote; if all do, nothing can be asked for but what is refused."""
    voters = world.newest_voters()
    others = [machine for machine in world.machines if not voters.has(machine.key) and machine.process is not None]
    machine = random.choice(others) if others else _some_machine(world, random)
    world.operators.add(machine, world.operators.timeout_ms(random))
    return (machine.node_id,)


def remove_voter(world: Cluster, random: Random) -> Struck:
    """Some voter is to vote no longer; often the leader."""
    keys = [voter.key for voter in world.newest_voters().voters]
    leading = [process.key for process in world.leaders if process.key in keys]
    key = random.choice(leading) if leading and random.random() < 0.4 else random.choice(keys)
    world.operators.remove(key, world.operators.timeout_ms(random))
    return (key.node_id,)


def hasty_change(world: Cluster, random: Random) -> Struck:
    """The next leader is asked to remove a voter before it has committed anything; and there will be one soon."""
    world.operators.be_hasty()
    return resign(world, random) if random.random() < 0.5 else ()


def transfer_leadership(world: Cluster, random: Random) -> Struck:
    key = random.choice(world.newest_voters().voters).key
    world.operators.transfer(key, world.operators.timeout_ms(random))
    return (key.node_id,)


def replace_disk(world: Cluster, random: Random) -> Struck:
    """A disk is gone. Its machine comes back with an empty one, which is another replica."""
    machine = _some_machine(world, random)
    former = machine.key
    if world.static_voters.has(former) or not may_be_lost(world, machine):
        return ()
    machine.wipe("fault")
    world.after(_down_us(random), machine.boot)
    if world.newest_voters().has(former):
        world.after(_down_us(random), world.operators.follow_up, machine, former)
    return (machine.node_id,)


def move_node(world: Cluster, random: Random) -> Struck:
    """A node comes back at another address, which its voter entry does not name. One at a time."""
    machine = _some_machine(world, random)
    voters = world.newest_voters().voters
    if any(voter.endpoints != world.machines[voter.key.node_id].endpoints for voter in voters) or not world.leaders:
        return ()
    machine.crash(power_cut=False, reason="moves", down_us=_down_us(random))
    machine.port += 1
    return (machine.node_id,)


def take_snapshot(world: Cluster, random: Random) -> Struck:
    """Some nodes take a snapshot now."""
    count = random.randint(1, len(world.machines))
    chosen = [machine for machine in random.sample(world.machines, count) if machine.process is not None]
    for machine in chosen:
        if machine.process is not None and machine.paused_until_us <= world.now_us:
            machine.process.snapshots.take()
    return tuple(machine.node_id for machine in chosen)


def rot(world: Cluster, random: Random) -> Struck:
    """Bits flip in what a disk has held for long: committed batches, a snapshot, the election state."""
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
        world.after(duration_us, world.network.mend, a, b)


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("kill", 1500, kill, "a process dies; the page cache lives"),
        Fault("power-cut", 1500, power_cut, "a machine loses what was not synced, sector by sector"),
        Fault("power-cut-everywhere", 5000, power_cut_everywhere, "all machines lose power at once"),
        Fault("crash-between-effects", 1500, crash_between_effects, "power goes between two effects of one step"),
        Fault("crash-in-flush", 600, crash_in_flush, "power goes while a flush is half-way: a torn tail"),
        Fault("crash-in-store", 1000, crash_in_store, "power goes while an election state is half-way"),
        Fault("crash-in-recovery", 3000, crash_in_recovery, "power goes, and again during the recovery"),
        Fault("graceful-restart", 2000, graceful_restart, "a node is asked to stop, ends and comes back"),
        Fault("resign", 2000, resign, "the leader is asked to resign"),
        Fault("pause", 1500, pause, "a process stands still for a while", needs_process=False),
        Fault("slow-disk", 1500, slow_disk, "a disk takes 5 or 50 times as long", needs_process=False),
        Fault("full-disk", 2500, full_disk, "a disk has no space left for a while", needs_process=False),
        Fault("failed-fsync", 3000, failed_fsync, "an fsync fails and takes the dirty pages with it", needs_process=False),
        Fault("failing-disk", 3000, failing_disk, "everything on a disk fails for a while", needs_process=False),
        Fault("refused-names", 3000, refused_names, "a disk refuses renames and removals for a while", needs_process=False),
        Fault("clock-jump", 1500, clock_jump, "a clock jumps forward", needs_process=False),
        Fault("clock-rate", 1500, clock_rate, "a clock runs slow or fast for a while", needs_process=False),
        Fault("partition", 1500, partition, "two groups that do not hear each other", needs_process=False),
        Fault("isolate", 1500, isolate, "one node cut off, perhaps in one direction only", needs_process=False),
        Fault("clog", 1000, clog, "what a node is sent, or sends, arrives after a while, all at once", needs_process=False),
        Fault("broken-link", 1500, broken_link, "two nodes do not hear each other", needs_process=False),
        Fault("take-snapshot", 700, take_snapshot, "some nodes take a snapshot", keeps_pace=True),
        Fault("add-voter", 300, add_voter, "a node is to become a voter", needs_process=False, keeps_pace=True),
        Fault(
            "remove-voter",
            700,
            remove_voter,
            "a voter is to be one no longer, often the leader",
            needs_process=False,
            keeps_pace=True,
        ),
        Fault("hasty-change", 1500, hasty_change, "a new leader is asked for a change at once", keeps_pace=True),
        Fault("transfer-leadership", 1200, transfer_leadership, "a voter is to lead", needs_process=False, keeps_pace=True),
        Fault("replace-disk", 2500, replace_disk, "a disk is gone, its node comes back with an empty one", needs_process=False),
        Fault("move-node", 2500, move_node, "a node comes back at another address", needs_process=False),
        Fault("rot", 1200, rot, "bits flip in what is on a disk", needs_process=False, keeps_pace=True),
    )
}
