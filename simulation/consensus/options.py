"""The options that a seed draws before it begins: nodes, quality of the network and the disks, and enabled faults.

Swarm testing: a seed enables only some faults, because a fault can hide the effects of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec


class NetworkOptions(msgspec.Struct, frozen=True):
    """Quality of the network. Probabilities are per thousand; one message in fifty takes ten times the mean `delay_us`."""

    delay_us: int = 500
    loss: int = 0
    response_loss: int = 0
    duplicates: int = 0
    replays: int = 0
    """Messages that arrive once more, seconds later."""
    reordering: bool = False


CALM = NetworkOptions()


class Strike(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One strike of a fault: time, name of the fault, and number among the strikes of that fault."""

    time_us: int
    fault: str
    number: int


class RaftTuning(msgspec.Struct, frozen=True):
    """Settings of RaftConfig that a seed can draw: drawn values show bugs that a constant hides (TigerBeetle's buggify).

    No seed turns off `pre_vote` and `check_quorum`. Experiments do, and the weather of a bug that one of them hides.
    """

    election_timeout_ms: int = 300
    retry_backoff_ms: int = 20
    high_watermark_linger_ms: int = 5
    uncommitted_bytes_max: int = 32 * 1024 * 1024
    observer_session_ms: int = 300_000
    parked_fetches_max: int = 10_000
    waiting_reads_max: int = 10_000
    pre_vote: bool = True
    check_quorum: bool = True


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, in virtual time. `faults` are names in FAULTS; `fault_pace` % stretches most intervals."""

    seed: str
    voters: int
    observers: int
    fault_phase_ms: int
    network: NetworkOptions
    disk_latency_us: int
    apply_delay_us: int
    propose_interval_us: int
    read_interval_us: int
    """Interval between two linearizable reads, of every process that believes to lead; 0: no reads."""
    clock_drift: bool
    fetch_max_bytes: int
    segment_bytes: int
    cache_bytes: int
    fault_pace: int
    faults: tuple[str, ...]
    tuning: RaftTuning = RaftTuning()
    short_reads: int = 0
    """Number of log reads for a follower, per thousand, that return one batch although there are more."""
    clients: int = 0
    """Number of clients that append and read, one call after the other, and whose history is checked."""
    client_interval_us: int = 50_000
    snapshot_interval_us: int = 0
    """Mean time between two snapshots of a node; 0: nodes take no snapshots."""
    snapshots_kept: int = 2
    snapshot_chunk_bytes: int = 1024 * 1024
    dynamic_voters: bool = False
    """True if the voters are in the log: `voters` of them at first, and every other node can become one."""
    auto_join: bool = False
    """True if observers make themselves voters."""
    heals_everything: bool = True
    """False: only a random core with a majority heals, and all other nodes stay broken forever."""
    rots_in_the_end: bool = False
    """True if the leader's newest snapshot rots after all nodes have come together, and a node needs that snapshot."""

    def random(self, component: str) -> Random:
        """Return the component's own generator, whose draws do not depend on the draws of other components."""
        return Random(f"{self.seed}/{component}")


def draw_options(seed: int | str, fault_names: Iterable[str], *, fault_phase_ms: int | None = None) -> SimulationOptions:
    """Draw the options of `seed`."""
    random = Random(f"{seed}/options")
    network = NetworkOptions(
        delay_us=random.choice((200, 1_000, 5_000, 20_000)),
        loss=random.choice((0, 0, 5, 50, 200)),
        response_loss=random.choice((0, 0, 5, 50, 100)),
        duplicates=random.choice((0, 0, 20, 200)),
        reordering=random.random() < 0.5,
    )
    intensity = random.choice((0.15, 0.4, 0.7))
    late = Random(f"{seed}/late options")
    latest = Random(f"{seed}/latest options")
    is_dynamic = latest.random() < 0.55
    network = msgspec.structs.replace(network, replays=late.choice((0, 0, 5, 50)))
    voters, observers = random.choice((1, 2, 3, 3, 3, 3, 4, 5, 5)), random.choice((0, 0, 1, 2, 3))
    if is_dynamic and latest.random() < 0.7:
        voters, observers = latest.choice(((1, 3), (2, 2), (3, 1), (3, 2), (3, 3), (4, 1)))
    options = SimulationOptions(
        seed=str(seed),
        voters=voters,
        observers=observers,
        fault_phase_ms=fault_phase_ms or random.choice((4_000, 8_000, 12_000)),
        network=network,
        disk_latency_us=random.choice((100, 1_000, 10_000, 60_000)),
        apply_delay_us=random.choice((0, 0, 20_000)),
        propose_interval_us=random.choice((10_000, 40_000, 150_000)),
        clock_drift=random.random() < 0.3,
        fetch_max_bytes=random.choice((1, 300, 8 * 1024 * 1024)),
        segment_bytes=4096 + random.choice((2_000, 10_000, 1_000_000)),
        cache_bytes=random.choice((0, 1_000, 1_000_000)),
        fault_pace=random.choice((100, 100, 40, 15)),
        faults=tuple(name for name in fault_names if random.random() < intensity),
        read_interval_us=random.choice((0, 5_000, 10_000, 20_000, 100_000)),
        tuning=_draw_tuning(late) if late.random() < 0.4 else RaftTuning(),
        short_reads=late.choice((0, 0, 100, 900)),
        clients=late.choice((0, 2, 3, 5)),
        client_interval_us=late.choice((20_000, 50_000, 200_000)),
        heals_everything=late.random() < 0.5,
        snapshot_interval_us=latest.choice((0, 60_000, 250_000, 1_000_000)),
        snapshots_kept=latest.choice((1, 1, 2, 3)),
        snapshot_chunk_bytes=latest.choice((70, 200, 1_000, 1024 * 1024)),
        dynamic_voters=is_dynamic,
        auto_join=is_dynamic and latest.random() < 0.3,
    )
    if is_dynamic and latest.random() < 0.7:
        options = _milder(options, latest)
    rots_in_the_end = Random(f"{seed}/newest options").random() < 0.7
    return msgspec.structs.replace(options, rots_in_the_end=rots_in_the_end and options.heals_everything)


def _milder(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Return milder options, with leaders that last: a change of the voters takes a while, and needs a leader."""
    network = options.network
    return msgspec.structs.replace(
        options,
        fault_pace=random.choice((100, 300, 1_000)),
        disk_latency_us=min(options.disk_latency_us, random.choice((1_000, 10_000))),
        network=msgspec.structs.replace(
            network,
            delay_us=min(network.delay_us, 5_000),
            loss=min(network.loss, random.choice((5, 50))),
            response_loss=min(network.response_loss, random.choice((5, 50))),
        ),
    )


def _draw_tuning(random: Random) -> RaftTuning:
    return RaftTuning(
        election_timeout_ms=random.choice((100, 300, 300, 600)),
        retry_backoff_ms=random.choice((2, 20, 100)),
        high_watermark_linger_ms=random.choice((0, 5, 50)),
        uncommitted_bytes_max=random.choice((4_000, 32 * 1024 * 1024)),
        observer_session_ms=random.choice((1_000, 300_000)),
        parked_fetches_max=random.choice((2, 10_000, 10_000)),
        waiting_reads_max=random.choice((1, 3, 10_000)),
    )
