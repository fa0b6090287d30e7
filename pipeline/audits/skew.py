"""How evenly brokers and their log directories are filled, at each time they were sampled (KIP-113).

A directory is compared with the mean of the online directories of its broker, a broker with the mean of the online brokers;
above `BAND` times the mean it is over the band, as Cruise Control counts. Copies that a move between directories is filling
(`is_future`) take space but are no replicas. What is offline has unknown sizes: it is told, and no part of a mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

BAND = 1.1


class Sample(NamedTuple):
    """A row of `silver.log_dir_samples`, as far as skew needs it; a directory without replicas is one row without a topic."""

    sampled_ms: int
    broker_id: int
    dir_id: str | None
    path: str | None
    topic: str | None
    partition: int | None
    size_bytes: int | None
    is_future: bool | None
    error: str | None


class Load(NamedTuple):
    """A row of `gold.log_dir_skew`; without `dir_id` and `path`, of `gold.broker_load`. `leaders` only at the newest time."""

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


def log_dir_skew(
    samples: Iterable[Sample],
    racks: Mapping[int, str | None] | None = None,
    leaders: Collection[tuple[str, int, int]] = (),
    band: float = BAND,
) -> list[Load]:
    """One row per directory and time. `leaders`: (topic, partition, broker) of the partitions' leaders now."""
    places: dict[_Place, list[Sample]] = defaultdict(list)
    for sample in samples:
        places[sample.sampled_ms, sample.broker_id, sample.dir_id, sample.path].append(sample)
    return _compared(places, lambda place: (place[0], place[1]), racks or {}, leaders, band)


def broker_load(
    samples: Iterable[Sample],
    racks: Mapping[int, str | None] | None = None,
    leaders: Collection[tuple[str, int, int]] = (),
    band: float = BAND,
) -> list[Load]:
    """One row per broker and time. A broker is offline if all of its directories are."""
    places: dict[_Place, list[Sample]] = defaultdict(list)
    for sample in samples:
        places[sample.sampled_ms, sample.broker_id, None, None].append(sample)
    return _compared(places, lambda place: place[0], racks or {}, leaders, band)


_Place = tuple[int, int, str | None, str | None]


def _compared(
    places: Mapping[_Place, list[Sample]],
    group: Callable[[_Place], object],
    racks: Mapping[int, str | None],
    leaders: Collection[tuple[str, int, int]],
    band: float,
) -> list[Load]:
    newest = max((place[0] for place in places), default=0)
    led = set(leaders)
    sizes = {place: sum(sample.size_bytes or 0 for sample in samples) for place, samples in places.items()}
    offline = {place for place, samples in places.items() if all(sample.error is not None for sample in samples)}
    online: dict[object, list[int]] = defaultdict(list)
    for place, size in sizes.items():
        if place not in offline:
            online[group(place)].append(size)
    rows = []
    for place, samples in places.items():
        replicas = [sample for sample in samples if sample.topic is not None and not sample.is_future]
        peers = online[group(place)]
        mean = sum(peers) / len(peers) if peers else None
        ratio = sizes[place] / mean if mean and place not in offline else None
        leading = sum((sample.topic or "", sample.partition or 0, place[1]) in led for sample in replicas)
        rows.append(
            Load(
                place[0],
                place[1],
                racks.get(place[1]),
                place[2],
                place[3],
                sizes[place],
                len(replicas),
                leading if place[0] == newest else None,
                mean,
                ratio,
                ratio is not None and ratio > band,
                place in offline,
            )
        )
    return sorted(rows, key=lambda row: (row.as_of, row.broker_id, row.dir_id or "", row.path or ""))
