"""Plans for a large cluster: processor time, bytes moved, and balance, beside Kafka's `--generate`.

The cluster is generated from a seed: brokers in racks, a tenth of them new and empty; partitions with log-normal sizes, so that
the largest replica is hundreds of times the median; one partition in two hundred breaks the rack rule; the first log directory of
every broker holds far more than the others. Kafka's rule places every topic from scratch, round-robin over racks and brokers from
a random start, without regard to sizes and current replicas.
"""

from __future__ import annotations

import time

import click
import msgspec
import numpy as np

from kraftlab.pipeline.planning.checks import Requested, Target, check
from kraftlab.pipeline.planning.cluster import Cluster, Ints, capacities, racks_of
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, encode_cluster, parse_cluster
from kraftlab.pipeline.planning.goals import DIRECTORY, DISK, LEADERS, RACK, REPLICAS, GoalState
from kraftlab.pipeline.planning.measure import measure
from kraftlab.pipeline.planning.options import PlanOptions, Scope
from kraftlab.pipeline.planning.plan import encode_plan
from kraftlab.pipeline.planning.propose import propose, solve

from .measure import Report, measurement, table

TB = 1e12


class Shape(msgspec.Struct, frozen=True):
    """A generated cluster. `median_bytes`, `spread`: of the log-normal sizes; `new_part`: of brokers without replicas."""

    partitions: int = 200_000
    brokers: int = 300
    factor: int = 3
    racks: int = 10
    directories: int = 12
    topics: int = 3831
    median_bytes: float = 4.6e8
    spread: float = 1.5
    largest_bytes: float = 153e9
    new_part: float = 0.1
    crowded_part: float = 0.005
    seed: int = 1


def make_cluster(shape: Shape) -> Cluster:
    random = np.random.default_rng(shape.seed)
    directory_bytes = int(3 * shape.partitions * shape.factor / shape.brokers * shape.median_bytes * 3 / shape.directories)
    brokers = tuple(
        Broker(
            id=at,
            rack=f"rack-{at % shape.racks:02}",
            log_dirs=tuple(LogDir(f"/data/d{n:02}", total_bytes=directory_bytes) for n in range(shape.directories)),
        )
        for at in range(shape.brokers)
    )
    old = shape.brokers - int(shape.brokers * shape.new_part)
    topic = np.sort(_topics(shape, random))
    size = np.minimum(random.lognormal(np.log(shape.median_bytes), shape.spread, shape.partitions), shape.largest_bytes)
    replicas = _replicas(shape, old, random)
    directory = np.where(random.random(replicas.shape) < 0.22, 0, random.integers(0, shape.directories, replicas.shape))
    rack, racks = racks_of(brokers)
    sizes = size.astype(np.int64)
    return Cluster(
        brokers=brokers,
        topics=tuple(f"topic-{at:05}" for at in range(int(topic.max()) + 1)),
        topic=topic,
        partition=np.arange(shape.partitions) - np.searchsorted(topic, topic),
        replicas=replicas,
        leader=replicas[:, 0].copy(),
        size_bytes=sizes,
        size_known=np.ones(shape.partitions, dtype=bool),
        directory=directory,
        busy=np.zeros(shape.partitions, dtype=bool),
        rack=rack,
        racks=racks,
        capacity_bytes=capacities(brokers, replicas, directory, sizes),
        index_of={broker.id: at for at, broker in enumerate(brokers)},
    )


def _topics(shape: Shape, random: np.random.Generator) -> Ints:
    weight = random.lognormal(0, 1, shape.topics)
    chosen = random.choice(shape.topics, shape.partitions, p=weight / weight.sum())
    return np.unique(chosen, return_inverse=True)[1].astype(np.int64)


def _replicas(shape: Shape, old: int, random: np.random.Generator) -> Ints:
    """Draw replicas in distinct racks for all but a few partitions, on brokers with uneven weights."""
    rows, factor = shape.partitions, shape.factor
    weight = random.normal(1, 0.015, old)
    replicas = np.full((rows, factor), -1, dtype=np.int64)
    for slot in range(factor):
        todo = np.arange(rows)
        crowded = random.random(rows) < (shape.crowded_part if slot == factor - 1 else 0)
        while len(todo):
            drawn = random.choice(old, len(todo), p=weight / weight.sum())
            others = replicas[todo, :slot]
            same_rack = (others % shape.racks == drawn[:, None] % shape.racks).any(1)
            good = ~(others == drawn[:, None]).any(1) & (same_rack == crowded[todo])
            replicas[todo[good], slot] = drawn[good]
            todo = todo[~good]
    return replicas


def generate_rule(cluster: Cluster, seed: int) -> Ints:
    """Return the proposal of Kafka's `--generate`: per topic a random start and shift, brokers alternating over racks."""
    random = np.random.default_rng(seed)
    order = np.lexsort((np.arange(cluster.broker_count), cluster.rack))
    at_rack = np.arange(cluster.broker_count) - np.searchsorted(cluster.rack[order], cluster.rack[order])
    arranged = order[np.lexsort((cluster.rack[order], at_rack))]
    brokers, racks = cluster.broker_count, len(cluster.racks)
    starts, shifts = random.integers(0, brokers, (2, len(cluster.topics)))
    first = (cluster.partition + starts[cluster.topic]) % brokers
    turn = shifts[cluster.topic] + cluster.partition // brokers
    tries = np.zeros(cluster.partition_count, dtype=np.int64)
    columns = [arranged[first]]
    for _ in range(1, cluster.replicas.shape[1]):
        chosen = np.full(cluster.partition_count, -1)
        todo = np.arange(cluster.partition_count)
        while len(todo):
            step = 1 + (turn[todo] * racks + tries[todo]) % (brokers - 1)
            chosen[todo] = arranged[(first[todo] + step) % brokers]
            tries[todo] += 1
            todo = todo[np.any([cluster.rack[column[todo]] == cluster.rack[chosen[todo]] for column in columns], axis=0)]
        columns.append(chosen)
    return np.stack(columns, 1)


def document_of(cluster: Cluster) -> ClusterDocument:
    """Return the same cluster as the document that commands read."""
    topics: dict[int, list[Partition]] = {}
    columns = (cluster.topic, cluster.partition, cluster.replicas, cluster.size_bytes, cluster.directory)
    for topic, partition, replicas, size, places in zip(*(column.tolist() for column in columns), strict=True):
        paths = tuple(cluster.brokers[broker].log_dirs[at].path for broker, at in zip(replicas, places, strict=True))
        topics.setdefault(topic, []).append(Partition(partition, tuple(replicas), replicas[0], size, paths))
    return ClusterDocument(cluster.brokers, tuple(Topic(cluster.topics[at], tuple(found)) for at, found in topics.items()))


class Planned(msgspec.Struct, frozen=True):
    """One plan. Seconds are of processor time: `solve_s` from arrays to arrays, `whole_s` with reading the JSON, reasons, waves
    and writing the plan, `check_s` the independent checks.
    """

    name: str
    solve_s: float
    whole_s: float
    check_s: float
    replicas: int
    replicas_part: float
    bytes_tb: float
    bytes_part: float
    bound_tb: float
    disk: str
    count: str
    leaders: str
    directories: str
    intra_tb: float
    rack_violations: int
    waves: int
    failed_checks: int


def measure_plan(shape: Shape, runs: int) -> list[Planned]:
    cluster = make_cluster(shape)
    document = document_of(cluster)
    seconds = []
    for _ in range(runs):
        started = time.process_time()
        solution = solve(cluster, PlanOptions())
        seconds.append(time.process_time() - started)
    data = encode_cluster(document)
    started = time.process_time()
    plan = propose(parse_cluster(data, "generated cluster"), PlanOptions())
    encode_plan(plan)
    whole = time.process_time() - started
    started = time.process_time()
    targets = [Target(move.topic, move.partition, move.after, move.dirs, move.before) for move in plan.moves]
    findings = check(document, targets, Requested())
    checked = time.process_time() - started
    total = float((cluster.size_bytes * shape.factor).sum())
    states = {goal.name: goal.after for goal in plan.goals}
    ours = Planned(
        name="plan",
        solve_s=min(seconds),
        whole_s=whole,
        check_s=checked,
        replicas=plan.replica_moves,
        replicas_part=plan.replica_moves / (shape.partitions * shape.factor),
        bytes_tb=plan.bytes_moved / TB,
        bytes_part=plan.bytes_moved / total,
        bound_tb=plan.lower_bound_bytes / TB,
        disk=_range(states[DISK]),
        count=_range(states[REPLICAS]),
        leaders=_range(states[LEADERS]),
        directories=_range(states[DIRECTORY]),
        intra_tb=plan.intra_bytes / TB,
        rack_violations=states[RACK].violations,
        waves=plan.waves,
        failed_checks=len(findings),
    )
    return [ours, _generated(cluster, solution.scope, shape, total, ours.bound_tb)]


def _generated(cluster: Cluster, scope: Scope, shape: Shape, total: float, bound_tb: float) -> Planned:
    started = time.process_time()
    replicas = generate_rule(cluster, shape.seed)
    spent = time.process_time() - started
    new = np.stack([(replicas[:, slot : slot + 1] != cluster.replicas).all(1) for slot in range(shape.factor)], 1)
    copied = float((new.sum(1) * cluster.size_bytes).sum())
    states = measure(cluster, scope, replicas, np.full_like(replicas, -1))
    return Planned(
        name="--generate's rule",
        solve_s=spent,
        whole_s=spent,
        check_s=0.0,
        replicas=int(new.sum()),
        replicas_part=float(new.mean()),
        bytes_tb=copied / TB,
        bytes_part=copied / total,
        bound_tb=bound_tb,
        disk=_range(states[DISK]),
        count=_range(states[REPLICAS]),
        leaders=_range(states[LEADERS]),
        directories="",
        intra_tb=0.0,
        rack_violations=states[RACK].violations,
        waves=0,
        failed_checks=0,
    )


def _range(state: GoalState) -> str:
    return f"{state.least:.3f}-{state.most:.3f}"


@measurement("planner", __doc__, quick="A tenth of the cluster.")
@click.option("--large", is_flag=True, help="Also a million partitions over a thousand brokers.")
@click.option("--runs", default=3, help="Number of runs; the fastest counts.")
def main(quick: bool, large: bool, runs: int) -> Report:
    shapes = [Shape(partitions=20_000, brokers=30, topics=383) if quick else Shape()]
    if large:
        shapes.append(Shape(partitions=1_000_000, brokers=1000, topics=19_155))
    measured = [(shape, measure_plan(shape, 1 if quick else runs)) for shape in shapes]
    documents = [{"shape": shape, "plans": found} for shape, found in measured]
    return Report(documents, "\n\n".join(_text(shape, found) for shape, found in measured))


def _text(shape: Shape, found: list[Planned]) -> str:
    about = f"{shape.partitions} partitions x RF {shape.factor} over {shape.brokers} brokers in {shape.racks} racks"
    names = [field.name for field in msgspec.structs.fields(Planned)]
    rows = [["", *(one.name for one in found)], *([name, *(_cell(one, name) for one in found)] for name in names[1:])]
    return f"{about}\n\n{table(rows)}"


def _cell(one: Planned, name: str) -> str:
    value = getattr(one, name)
    if name.endswith("_part"):
        return f"{value:.1%}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
