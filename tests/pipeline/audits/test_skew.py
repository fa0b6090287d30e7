"""Balance of directories and brokers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kraftlab.pipeline.audits import skew
from kraftlab.pipeline.audits.skew import Load
from kraftlab.pipeline.storage.schemas import arrow_schema


def sample(broker: int, directory: str, size: int | None, topic: str | None = "orders", partition: int = 0, **fields: Any) -> Any:
    place = {"sampled_ms": 1000, "broker_id": broker, "dir_id": f"id-{directory}", "path": f"/{directory}"}
    replica = {"topic": topic, "partition": None if topic is None else partition, "size_bytes": size, "is_future": False}
    return place | replica | fields


def measured(place: list[str], samples: list[Any], leaders: list[tuple[str, int, int]] = [], **options: Any) -> list[Load]:  # noqa: B006
    """However the rows are cut, they say the same."""
    rows = pa.Table.from_pylist(samples, schema=arrow_schema("silver.log_dir_samples")).select(skew.SAMPLE_COLUMNS)
    keys = [dict(zip(skew.LEADER_COLUMNS, leader, strict=True)) for leader in leaders]
    led = pa.Table.from_pylist(keys, schema=arrow_schema("silver.partition_state")).select(skew.LEADER_COLUMNS)
    racks = options.pop("racks", {})
    found = skew.loads([rows], racks, led, place, **options)
    assert skew.loads([rows.slice(at, 1) for at in range(rows.num_rows)], racks, led, place, **options) == found
    return found


SAMPLES = [
    sample(1, "a", 300),
    sample(1, "a", 100, partition=1),
    sample(1, "b", 100, partition=2),
    sample(1, "c", None, topic=None),
    sample(2, "d", 200),
]


def test_a_directory_is_compared_with_the_mean_of_its_broker():
    a, b, c, d = measured(skew.DIRECTORY, SAMPLES, [("orders", 0, 1)], racks={1: "r1"})
    assert a == Load(1000, 1, "r1", "id-a", "/a", 400, 2, 1, 500 / 3, 400 / (500 / 3), True, False)
    assert (b.bytes, round(b.ratio or 0, 9), b.over_band) == (100, 0.6, False)
    assert (c.bytes, c.replicas, c.ratio, c.offline) == (0, 0, 0.0, False)
    assert (d.rack, d.ratio, d.over_band) == (None, 1.0, False)


def test_a_broker_is_compared_with_the_mean_of_the_brokers():
    one, two = measured(skew.BROKER, SAMPLES, band=1.5)
    assert (one.dir_id, one.bytes, one.replicas, one.mean_bytes) == (None, 500, 3, 350.0)
    assert (round(one.ratio or 0, 3), one.over_band, two.over_band) == (1.429, False, False)
    assert measured(skew.BROKER, SAMPLES)[0].over_band


def test_what_is_offline_is_reported_and_no_part_of_the_mean():
    gone = sample(1, "e", None, topic=None, error="KAFKA_STORAGE_ERROR")
    rows = measured(skew.DIRECTORY, [sample(1, "a", 100), sample(1, "b", 100, partition=1), gone])
    assert [(row.path, row.mean_bytes, row.ratio, row.offline) for row in rows] == [
        ("/a", 100.0, 1.0, False),
        ("/b", 100.0, 1.0, False),
        ("/e", 100.0, None, True),
    ]
    (broker,) = measured(skew.BROKER, [gone])
    assert (broker.mean_bytes, broker.offline) == (None, True)


def test_a_copy_that_is_being_filled_takes_space_but_is_not_a_replica():
    samples = [sample(1, "a", 100), sample(1, "b", 50, is_future=True)]
    _, b = measured(skew.DIRECTORY, samples, leaders=[("orders", 0, 1)])
    assert (b.bytes, b.replicas, b.leaders) == (50, 0, 0)


def test_each_sample_is_on_its_own_and_leaders_are_known_of_the_newest_only():
    rows = measured(skew.BROKER, [sample(1, "a", 100), sample(1, "a", 900, sampled_ms=2000)], [("orders", 0, 1)])
    assert [(row.as_of, row.bytes, row.ratio, row.leaders) for row in rows] == [(1000, 100, 1.0, None), (2000, 900, 1.0, 1)]


def test_empty_directories_have_no_ratio():
    (row,) = measured(skew.DIRECTORY, [sample(1, "a", 0, topic=None)])
    assert (row.mean_bytes, row.ratio, row.over_band) == (0.0, None, False)
