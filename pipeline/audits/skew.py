"""Evenness of the bytes of brokers and of their log directories at each sampling time (KIP-113).

A directory is compared with the mean of its broker's online directories, a broker with the mean of the online brokers. More than
`BAND` times the mean is over the band, as in Cruise Control. Copies that a move between directories is filling (`is_future`)
count as bytes but not as replicas. Offline directories have unknown sizes: they are listed and left out of means.

Samples, which can be millions, are summed by columns; directories and brokers are few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

BAND = 1.1
SAMPLE_COLUMNS = [
    "sampled_ms", "broker_id", "dir_id", "path", "topic", "partition", "size_bytes", "is_future", "error",
]  # fmt: skip
LEADER_COLUMNS = ["topic", "partition", "leader"]
BROKER, DIRECTORY = ["sampled_ms", "broker_id"], ["sampled_ms", "broker_id", "dir_id", "path"]
_SUMS = ("bytes", "replicas", "led", "online")


class Load(NamedTuple):
    """A row of `gold.log_dir_skew`; without `dir_id` and `path`, of `gold.broker_load`. `leaders` is given at the newest time
    only.
    """

    as_of: int
    broker_id: int
    rack: str | None
    dir_id: str | None
    path: str | None
    bytes: int
    replicas: int
    leaders: int | None
    mean_bytes: float | None
    ratio: float | None
    over_band: bool
    offline: bool


def loads(
    samples: Iterable[pa.Table], racks: Mapping[int, str | None], leaders: pa.Table, place: list[str], band: float = BAND
) -> list[Load]:
    """Return one row per place and time. With DIRECTORY, directories are compared with the others of their broker; with BROKER,
    brokers with all brokers, and a broker is offline if all of its directories are. `samples` have SAMPLE_COLUMNS, in any
    number of parts; `leaders` have LEADER_COLUMNS, as they are now.
    """
    return _compared(_filled(samples, leaders, place), place, 1 if place == BROKER else 2, racks, band)


def _filled(samples: Iterable[pa.Table], leaders: pa.Table, place: list[str]) -> pa.Table:
    """Return a row per place with the sums of its samples."""
    led = _replicas(leaders, "leader").drop_null()
    parts = [_summed(_measured(rows, led), place) for rows in samples]
    return _summed(pa.concat_tables(parts), place) if parts else pa.table({name: [] for name in (*place, *_SUMS)})


def _measured(rows: pa.Table, led: pa.ChunkedArray) -> pa.Table:
    is_replica = pc.and_(pc.is_valid(rows["topic"]), pc.invert(pc.fill_null(rows["is_future"], False)))
    is_led = pc.and_(is_replica, pc.is_in(_replicas(rows, "broker_id"), led))
    counts = (pc.fill_null(rows["size_bytes"], 0), is_replica, is_led, pc.is_null(rows["error"]))
    columns = {name: pc.cast(values, pa.int64()) for name, values in zip(_SUMS, counts, strict=True)}
    return pa.table({**{name: rows[name] for name in DIRECTORY}, **columns})


def _replicas(rows: pa.Table, broker: str) -> pa.ChunkedArray:
    """Return each replica as one text, or null if its broker is null."""
    partition = pc.cast(rows["partition"], pa.string())
    return pc.binary_join_element_wise(pc.cast(rows[broker], pa.string()), partition, rows["topic"], ":")


def _summed(rows: pa.Table, place: list[str]) -> pa.Table:
    summed = rows.group_by(place).aggregate([(name, "sum") for name in _SUMS])
    return summed.select([*place, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*place, *_SUMS])


def _compared(filled: pa.Table, place: list[str], peers: int, racks: Mapping[int, str | None], band: float) -> list[Load]:
    """Compare each place with the places that share the first `peers` columns of `place`."""
    newest = pc.max(filled[place[0]]).as_py()
    sizes: dict[tuple[int | str | None, ...], list[int]] = defaultdict(list)
    places = [(*row.values(),) for row in filled.to_pylist()]
    for row in places:
        if row[-1]:
            sizes[row[:peers]].append(row[-4])
    loads = []
    for row in places:
        at_ms, broker, (dir_id, path) = row[0], row[1], row[2:-4] or (None, None)
        size, replicas, led, online = row[-4:]
        others = sizes[row[:peers]]
        mean = sum(others) / len(others) if others else None
        ratio = size / mean if mean and online else None
        loads.append(
            Load(
                at_ms,
                broker,
                racks.get(broker),
                dir_id,
                path,
                size,
                replicas,
                led if at_ms == newest else None,
                mean,
                ratio,
                ratio is not None and ratio > band,
                not online,
            )
        )
    return sorted(loads, key=lambda load: (load.as_of, load.broker_id, load.dir_id or "", load.path or ""))
