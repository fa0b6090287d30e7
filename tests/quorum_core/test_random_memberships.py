"""Short random lives of quorums whose voters change all the time, with crashes, cuts, stalled and wiped disks."""

import random

import pytest

from kraftlab.quorum.core.batch import read_header
from kraftlab.quorum.core.effects import ReadIndexReady
from kraftlab.quorum.core.events import ReadIndexAsked
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.messages import AddVoterRequest, RemoveVoterRequest, TransferLeadershipRequest
from kraftlab.quorum.core.voter_set_history import VoterSetHistory


class Checker:
    """One leader per epoch, committed data stays, no high watermark falls, and the voters are what the node's own log says.

    A linearizable read reflects whatever anybody knew to be committed when it was asked. Whenever a leader's high watermark
    rises, a majority of the voters of that moment hold everything below it on disk, or did so before the disk was wiped.
    """

    def __init__(self, world) -> None:
        self.world = world
        self.leaders: dict[int, tuple[int, int]] = {}
        self.committed: dict[int, bytes] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.leader_marks: dict[int, int] = {}
        self.reads: list[int] = []
        self.confirmed = 0

    def ask_read(self, host) -> None:
        self.reads.append(max(self.high_watermarks.values()))
        host.step(ReadIndexAsked(len(self.reads) - 1))

    def check_reads(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, ReadIndexReady):
                assert effect.offset >= self.reads[effect.token]
                self.confirmed += 1

    def check(self, host) -> None:
        node, who = host.node, (host.config.node_id, host.incarnation)
        if node.is_leader:
            assert self.leaders.setdefault(node.epoch, who) == who
            if node.leader_high_watermark > self.leader_marks.get(node.epoch, -1):
                self.leader_marks[node.epoch] = node.leader_high_watermark
                self.check_majority(node)
        before, now = self.high_watermarks.get(who, -1), node.high_watermark
        assert now >= before
        self.high_watermarks[who] = now
        for data in host.batches if now > before else []:
            header = read_header(data)
            if before < header.end_offset <= now:
                assert self.committed.setdefault(header.base_offset, data) == data

    def check_majority(self, node) -> None:
        ends = {
            h.config.key: read_header(h.disk[-1]).end_offset if h.disk else h.log_start.offset for h in self.world.hosts.values()
        }
        mark = node.leader_high_watermark
        held = [voter for voter in node.voters.voters if ends.get(voter.key, mark) >= mark]
        assert len(held) >= node.voters.majority(), f"{node!r}: {ends}"

    def check_voters(self, host) -> None:
        history = VoterSetHistory(host.config.voters, host.bootstrap)
        if host.node.log.start_offset:
            history.reset(host.snapshot_control(host.node.log.start))
        history.append(control_of([read_header(data) for data in host.batches], b"".join(host.batches)))
        assert host.node.voters == history.voters
        assert host.node.voters_offset == history.offset or host.node.log.start_offset


def can_be_wiped(world, victim) -> bool:
    """Every set that anybody acts on keeps a majority of its disks without this one."""
    disks = [host.config.key for host in world.hosts.values() if host is not victim]
    return all(
        sum(voter.key in disks for voter in host.node.voters.voters) >= host.node.voters.majority()
        for host in world.hosts.values()
        if host.incarnation and host.node.voters.voters
    )


def can_be_spared(world, leader, host) -> bool:
    """An operator who knows which disks are gone does not remove the last good ones."""
    disks = [h.config.key for h in world.hosts.values()]
    rest = leader.node.voters.without(host.config.node_id)
    return sum(voter.key in disks for voter in rest.voters) >= rest.majority()


def disturb_snapshots(world, random_: random.Random) -> None:
    host = random_.choice(list(world.hosts.values()))
    what = random_.choice(("snapshot", "snapshot", "slow", "fast", "none"))
    if what == "snapshot" and host.is_up:
        host.take_snapshot(padding=random_.choice((10, 200, 2000)))
    elif what == "slow":
        host.snapshot_disk_stalled = True
    elif what == "fast":
        host.unstall_snapshot_disk()


def disturb(world, random_: random.Random) -> None:
    host = random_.choice(list(world.hosts.values()))
    what = random_.choice(
        (
            "crash",
            "start",
            "start",
            "cut",
            "one way",
            "heal",
            "heal",
            "stall",
            "unstall",
            "unstall",
            "add",
            "add",
            "remove",
            "transfer",
            "wipe",
        )
    )
    if what == "crash" and host.is_up:
        host.crash()
    elif what == "start" and not host.is_up:
        host.disk_stalled = False
        host.start()
    elif what == "cut":
        world.cut(host.config.node_id)
    elif what == "one way":
        world.cuts.add((host.config.node_id, random_.choice(list(world.hosts))))
    elif what == "heal":
        world.heal()
    elif what == "stall":
        host.stall_disk()
    elif what == "unstall":
        host.unstall_disk()
    elif what == "wipe" and can_be_wiped(world, host):
        if host.is_up:
            host.crash()
        host.wipe()
        host.disk_stalled = False
        host.start()
    for leader in [h for h in world.up() if h.node.is_leader]:
        if what == "add":
            world.ask(leader.config.node_id, AddVoterRequest(-1, host.as_voter(), 2_000))
        elif what == "remove" and can_be_spared(world, leader, host):
            voter = leader.node.voters.get(host.config.node_id)
            world.ask(leader.config.node_id, RemoveVoterRequest(-1, voter.key if voter else host.config.key, 2_000))
        elif what == "transfer":
            world.ask(leader.config.node_id, TransferLeadershipRequest(-1, host.config.key, 2_000))
        if leader.node.is_leader:
            leader.propose(bytes([0x91, random_.randrange(100)]))
    world.run(random_.choice((1, 3, 10, 50, 200, 700)))


@pytest.mark.parametrize("seed", range(24))
def test_random_memberships_keep_every_promise_and_end_well(world, seed, monkeypatch) -> None:
    live(world, f"membership {seed}", seed, monkeypatch)


@pytest.mark.parametrize("seed", range(8))
def test_random_memberships_with_snapshots_keep_every_promise_and_end_well(world, seed, monkeypatch) -> None:
    options = {"snapshots_kept": 1 + seed % 2, "snapshot_chunk_bytes": 100}
    live(world, f"membership and snapshots {seed}", seed, monkeypatch, **options)


def live(world, life, seed, monkeypatch, **options) -> None:
    """A life of a quorum: 120 disturbances, of snapshots as well if `options` speak of them; then peace."""
    random_ = random.Random(life)
    voters = tuple(range(1, random_.choice((1, 2, 3, 3, 4, 5)) + 1))
    observers = tuple(range(len(voters) + 1, len(voters) + 1 + random_.choice((1, 2))))
    quorum = world(voters, observers, seed=seed, dynamic=True, auto_join=seed % 3 == 0, **options)
    checker = Checker(quorum)
    for host in quorum.hosts.values():

        def checked(event, step=host.step, host=host):
            effects = step(event)
            checker.check(host)
            checker.check_reads(effects)
            return effects

        monkeypatch.setattr(host, "step", checked)
    quorum.start()
    quorum.settle()
    for _ in range(120):
        disturb(quorum, random_)
        if options:
            disturb_snapshots(quorum, random_)
        for host in quorum.up():
            checker.check_voters(host)
            if host.node.is_leader:
                checker.ask_read(host)
    quorum.heal()
    for host in quorum.hosts.values():
        host.unstall_disk()
        host.unstall_snapshot_disk()
        if not host.is_up:
            host.start()
    quorum.run(6_000).settle()
    epoch = quorum.leader().node.epoch
    quorum.run(3_000).settle()
    assert quorum.leader().node.epoch == epoch
    assert checker.confirmed
    final = {read_header(data).base_offset: data for data in quorum.leader().batches}
    start_offset = quorum.leader().node.log.start_offset
    assert all(final[offset] == data for offset, data in checker.committed.items() if offset >= start_offset)
    assert all(host.node.voters == quorum.leader().node.voters for host in quorum.up())
    if seed % 3 == 0:
        quorum.run_until(lambda: all(host.node.is_voter for host in quorum.up()), 60_000)
        assert [v.key for v in quorum.leader().node.voters.voters] == [host.config.key for host in quorum.up()]
