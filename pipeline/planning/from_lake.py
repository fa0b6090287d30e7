"""A cluster from a lake: the newest partition states, brokers and samples of log directories, through Arrow without Spark.

Sizes and directories come from each broker's newest sample. A replica without a sample has an unknown size, and the directory of
its metadata if the broker's sample has its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import WrongUse
from .documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated

if TYPE_CHECKING:
    from ..lake.commits import Lake

STATE, BROKERS, SAMPLES = "silver.partition_state", "silver.brokers", "silver.log_dir_samples"
Row = dict[str, Any]


def read_lake(uri: str, warn: Callable[[str], None]) -> ClusterDocument:
    """Return the cluster. WrongUse if the lake has no partition states yet."""
    from ..lake.commits import Lake

    lake = Lake(uri)
    parts = lake.active(STATE)
    if not parts:
        raise WrongUse(f"{uri} has no {STATE}; the next step: kraftlab pipeline build gold --lake {uri}")
    newest = max(parts, key=lambda part: part.hi)
    rows = _known(lake.arrow_of(newest).to_pylist(), warn)
    samples = newest_samples(_rows(lake, SAMPLES))
    if not samples:
        warn(f"{uri} has no {SAMPLES}: sizes are unknown, plans count replicas only")
    return document_of(rows, _rows(lake, BROKERS), samples, as_of_offset=newest.hi - 1)


def _known(rows: list[Row], warn: Callable[[str], None]) -> list[Row]:
    """Return the rows of partitions with known topic and replicas; a log without its beginning does not have them all."""
    known = [row for row in rows if row["topic"] is not None and row["replicas"]]
    if len(known) < len(rows):
        warn(f"{len(rows) - len(known)} partitions with unknown topic or replicas are left out")
    return known


def _rows(lake: Lake, table: str) -> list[Row]:
    rows: list[Row] = lake.arrow(table).to_pylist()
    return rows


def newest_samples(samples: Iterable[Row]) -> list[Row]:
    """Return the rows of each broker's last sample."""
    found = list(samples)
    last: dict[int, int] = {}
    for row in found:
        last[row["broker_id"]] = max(last.get(row["broker_id"], -1), row["sampled_ms"])
    return [row for row in found if row["sampled_ms"] == last[row["broker_id"]]]


def document_of(states: Iterable[Row], brokers: Iterable[Row], samples: Iterable[Row], *, as_of_offset: int) -> ClusterDocument:
    """Return rows of the three tables as a cluster. BadCluster."""
    directories: dict[int, dict[str, LogDir]] = {}
    sizes: dict[tuple[str, int, int], tuple[str, int]] = {}
    for row in samples:
        broker = row["broker_id"]
        directories.setdefault(broker, {}).setdefault(row["path"], _directory(row))
        if row["topic"] is not None and not row["is_future"]:
            sizes[row["topic"], row["partition"], broker] = (row["path"], row["size_bytes"])
    paths = {entry.id: entry.path for found in directories.values() for entry in found.values() if entry.id}
    topics: dict[str, list[Partition]] = {}
    for row in states:
        topics.setdefault(row["topic"], []).append(_partition(row, sizes, paths))
    return validated(
        ClusterDocument(
            tuple(_brokers(brokers, directories)),
            tuple(Topic(name, tuple(partitions)) for name, partitions in topics.items()),
            as_of_offset=as_of_offset,
        )
    )


def _directory(row: Row) -> LogDir:
    return LogDir(
        path=row["path"],
        id=row["dir_id"] or "",
        total_bytes=-1 if row["dir_total_bytes"] is None else row["dir_total_bytes"],
        usable_bytes=-1 if row["dir_usable_bytes"] is None else row["dir_usable_bytes"],
        online=not row["error"],
    )


def _partition(row: Row, sizes: dict[tuple[str, int, int], tuple[str, int]], paths: dict[str, str]) -> Partition:
    replicas = tuple(row["replicas"])
    found = [sizes.get((row["topic"], row["partition"], broker)) for broker in replicas]
    ids = row["directories"] or []
    if len(ids) != len(replicas):
        ids = [""] * len(replicas)
    known = [entry[1] for entry in found if entry is not None]
    leader = sizes.get((row["topic"], row["partition"], row["leader"]))
    return Partition(
        partition=row["partition"],
        replicas=replicas,
        leader=-1 if row["leader"] is None else row["leader"],
        size_bytes=leader[1] if leader is not None else max(known, default=None),
        log_dirs=tuple(entry[0] if entry else paths.get(id) for entry, id in zip(found, ids, strict=True)),
        adding=tuple(row["adding"] or ()),
        removing=tuple(row["removing"] or ()),
    )


def _brokers(rows: Iterable[Row], directories: dict[int, dict[str, LogDir]]) -> list[Broker]:
    """Return the brokers after all their records."""
    found: dict[int, Broker] = {}
    for row in sorted(rows, key=lambda row: (row["offset"], row["idx_in_batch"])):
        id = row["broker_id"]
        if row["op"] == "unregister":
            found.pop(id, None)
            continue
        before = found.get(id, Broker(id))
        fenced = (not before.alive) if row["fenced"] is None else row["fenced"]
        rack = before.rack if row["rack"] is None and row["op"] != "register" else row["rack"]
        found[id] = Broker(id, rack, not fenced, tuple(directories.get(id, {}).values()))
    return list(found.values())
