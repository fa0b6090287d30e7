"""Short random lives with crashes, cuts and stalled disks, checked after every step; and requests nobody sane would send."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.quorum.core import ElectionState, LogTruncationRefused, OffsetAndEpoch, ReplicaKey
from kraftlab.quorum.core.batch import read_header
from kraftlab.quorum.core.effects import (
    InstallSnapshot,
    OpenSnapshot,
    ReadSnapshot,
    Reply,
    StoreSnapshotChunk,
    VerifySnapshot,
)
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.events import SnapshotChunkStored, SnapshotRead, SnapshotVerified
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
    SnapshotRequired,
    VoteRequest,
    VoteResponse,
)


class Checker:
    """One leader per epoch; what was committed stays what it is, everywhere; no high watermark falls."""

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[int, int]] = {}
        self.committed: dict[int, bytes] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}

    def headers(self):
        return (read_header(data) for data in self.committed.values())

    def check_effects(self, host, effects) -> None:
        """A snapshot installed is a position of what was committed; who repairs grants nothing."""
        for effect in effects:
            if isinstance(effect, InstallSnapshot):
                header = next(header for header in self.headers() if header.end_offset == effect.id.offset)
                assert (header.epoch, header.crc) == (effect.id.epoch, effect.last_crc)
            if isinstance(effect, Reply) and isinstance(effect.response, VoteResponse) and effect.response.granted:
                assert not host.node.is_repairing

    def check(self, host) -> None:
        log = host.node.log
        assert log.start_offset == 0 or log.start == host.node.snapshots[0]
        assert all(log.holds(snapshot) and snapshot.offset <= host.node.high_watermark for snapshot in host.node.snapshots)
        assert not host.node.is_repairing or host.node.state_name in ("unattached", "follower")
        who = (host.config.node_id, host.incarnation)
        if host.node.is_leader:
            assert self.leaders.setdefault(host.node.epoch, who) == who
        before, now = self.high_watermarks.get(who, -1), host.node.high_watermark
        assert now >= before
        self.high_watermarks[who] = now
        for data in host.batches if now > before else []:
            header = read_header(data)
            if before < header.end_offset <= now:
                assert self.committed.setdefault(header.base_offset, data) == data


FAULTS = ("crash", "start", "start", "cut", "one way", "heal", "heal", "stall", "unstall", "unstall", "propose")
SNAPSHOT_FAULTS = ("snapshot", "snapshot", "slow snapshots", "snapshot disk on", "lose snapshots", "rot")


def disturb(world, random_: random.Random, faults: tuple[str, ...] = FAULTS) -> None:
    host = random_.choice(list(world.hosts.values()))
    what = random_.choice(faults)
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
    elif what == "snapshot" and host.is_up:
        host.take_snapshot(padding=random_.choice((10, 200, 2000)))
    elif what == "slow snapshots":
        host.snapshot_disk_stalled = True
    elif what == "snapshot disk on":
        host.unstall_snapshot_disk()
    elif what == "lose snapshots" and host.part[1]:
        host.part = (host.part[0], host.part[1][:-1] + b"?")
    elif what == "rot" and not host.is_up and host.disk and not any(other.repair_until for other in world.hosts.values()):
        host.rot(random_.choice([read_header(data).base_offset for data in host.disk]))
    for leader in world.up():
        if leader.node.is_leader:
            leader.propose(bytes([0x91, random_.randrange(100)]))
    world.run(random_.choice((1, 3, 10, 50, 200, 700)))


@pytest.mark.parametrize("seed", range(40))
def test_random_lives_keep_every_promise_and_end_well(world, seed, monkeypatch) -> None:
    random_ = random.Random(f"life {seed}")
    voters = tuple(range(1, random_.choice((1, 2, 3, 3, 5)) + 1))
    quorum, checker = world(voters, (9,) if seed % 2 else (), seed=seed), Checker()
    for host in quorum.hosts.values():
        step = host.step
        monkeypatch.setattr(host, "step", lambda event, step=step, host=host: (step(event), checker.check(host))[0])
    quorum.start()
    for _ in range(80):
        disturb(quorum, random_)
    quorum.heal()
    for host in quorum.hosts.values():
        host.unstall_disk()
        if not host.is_up:
            host.start()
    quorum.run(3_000).settle()
    epoch = quorum.leader().node.epoch
    quorum.run(3_000).settle()
    assert quorum.leader().node.epoch == epoch
    final = {read_header(data).base_offset: data for data in quorum.leader().batches}
    assert all(final[offset] == data for offset, data in checker.committed.items())


@pytest.mark.parametrize("seed", range(20))
def test_lives_with_snapshots_and_rot_keep_every_promise_and_end_well(world, seed, monkeypatch) -> None:
    random_ = random.Random(f"snapshots {seed}")
    options = {"snapshots_kept": 1 + seed % 2, "snapshot_chunk_bytes": 100}
    quorum, checker = (
        world((1, 2, 3, 4, 5)[: random_.choice((3, 3, 5))], (9,) if seed % 3 else (), seed=seed, **options),
        Checker(),
    )

    def watch(host) -> None:
        step = host.step

        def watched(event):
            effects = step(event)
            checker.check(host)
            checker.check_effects(host, effects)
            return effects

        monkeypatch.setattr(host, "step", watched)

    for host in quorum.hosts.values():
        watch(host)
    quorum.start()
    for _ in range(100):
        disturb(quorum, random_, FAULTS + SNAPSHOT_FAULTS)
    quorum.heal()
    for host in quorum.hosts.values():
        host.unstall_disk()
        host.unstall_snapshot_disk()
        if not host.is_up:
            host.start()
    quorum.run(3_000).settle()
    quorum.run(3_000).settle()
    leader = quorum.leader()
    assert all(host.repair_until > leader.node.log_end_offset for host in quorum.up() if host.node.is_repairing)
    final = {read_header(data).base_offset: data for data in leader.batches}
    start = leader.node.log.start_offset
    assert all(final[offset] == data for offset, data in checker.committed.items() if offset >= start)


def test_the_same_seed_is_the_same_life(world) -> None:
    def life() -> list[str]:
        quorum = world((1, 2, 3), (9,), seed=7).start()
        random_ = random.Random("same")
        for _ in range(40):
            disturb(quorum, random_)
        return [repr(effect) for host in quorum.hosts.values() for effect in host.history]

    assert life() == life()


numbers = st.one_of(st.integers(-3, 8), st.sampled_from([2**31 - 1, 2**31, 2**40, -(2**40)]))
positions = st.one_of(st.builds(OffsetAndEpoch, numbers, numbers), st.just(OffsetAndEpoch(6, 2)))
keys = st.builds(ReplicaKey, numbers, st.sampled_from([bytes(16), bytes([1]) * 16, bytes([2]) * 16]))
requests = st.one_of(
    st.builds(VoteRequest, numbers, keys, keys, numbers, numbers, st.booleans()),
    st.builds(BeginQuorumEpochRequest, numbers, numbers, keys, st.just({})),
    st.builds(EndQuorumEpochRequest, numbers, numbers, st.lists(keys, max_size=4).map(tuple)),
    st.builds(FetchRequest, numbers, keys, numbers, numbers, numbers, numbers, numbers),
    st.builds(FetchSnapshotRequest, numbers, keys, positions, numbers, numbers),
)
views = st.builds(LeaderView, numbers, numbers, st.just({}))
errors = st.sampled_from(list(ErrorCode))
outcomes = st.one_of(
    st.builds(Records, st.binary(max_size=60)),
    st.builds(Diverging, numbers, numbers),
    st.builds(SnapshotRequired, numbers, numbers),
    st.just(SnapshotRequired(6, 2)),
)
responses = st.one_of(
    st.builds(VoteResponse, errors, views, st.booleans(), st.booleans()),
    st.builds(FetchResponse, errors, views, numbers, numbers, numbers, outcomes),
    st.builds(FetchSnapshotResponse, errors, views, positions, numbers, numbers, st.binary(max_size=8)),
)


def disk_answers(node) -> None:
    """What the disk says to the wishes of the last step, whether they made sense or not."""
    for effect in node.effects:
        if isinstance(effect, OpenSnapshot):
            node.step(SnapshotChunkStored(effect.id, 3))
        elif isinstance(effect, StoreSnapshotChunk):
            node.step(SnapshotChunkStored(effect.id, effect.position + len(effect.data)))
        elif isinstance(effect, VerifySnapshot):
            node.step(SnapshotVerified(effect.id, 1, ()))
        elif isinstance(effect, ReadSnapshot):
            node.step(SnapshotRead(effect.read_id, 5, b"12345"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_nothing_a_peer_says_raises(driven, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([OffsetAndEpoch(0, 0), OffsetAndEpoch(4, 1)]))
    node = driven(log=((1, 2), (2, 1)), election=ElectionState(2, -1, None), start=start)
    if data.draw(st.booleans()):
        node.win()
    in_flight = []
    try:
        for _ in range(data.draw(st.integers(1, 12))):
            if in_flight and data.draw(st.booleans()):
                node.answer(in_flight.pop(), data.draw(responses))
            elif data.draw(st.booleans()):
                node.request(2, data.draw(requests), after_ms=data.draw(st.integers(0, 400)))
            else:
                node.tick(data.draw(st.integers(0, 400)))
            in_flight += node.sent(VoteRequest) + node.sent(FetchRequest) + node.sent(FetchSnapshotRequest)
            disk_answers(node)
    except LogTruncationRefused as error:
        assert "committed records that the leader lacks" in str(error)
