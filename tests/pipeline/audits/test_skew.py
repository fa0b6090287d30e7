"""How evenly directories and brokers are filled."""

from __future__ import annotations

from kraftlab.pipeline.audits.skew import Load, Sample, broker_load, log_dir_skew


def sample(
    broker: int, directory: str, size: int | None, topic: str | None = "orders", partition: int = 0, **fields: object
) -> Sample:
    row = Sample(1000, broker, f"id-{directory}", f"/{directory}", topic, None if topic is None else partition, size, False, None)
    return row._replace(**fields)


SAMPLES = [
    sample(1, "a", 300),
    sample(1, "a", 100, partition=1),
    sample(1, "b", 100, partition=2),
    sample(1, "c", None, topic=None),
    sample(2, "d", 200),
]


def test_a_directory_is_compared_with_the_mean_of_its_broker():
    a, b, c, d = log_dir_skew(SAMPLES, {1: "r1"}, [("orders", 0, 1)])
    assert a == Load(1000, 1, "r1", "id-a", "/a", 400, 2, 1, 500 / 3, 400 / (500 / 3), True, False)
    assert (b.bytes, round(b.ratio or 0, 9), b.over_band) == (100, 0.6, False)
    assert (c.bytes, c.replicas, c.ratio, c.offline) == (0, 0, 0.0, False)
    assert (d.rack, d.ratio, d.over_band) == (None, 1.0, False)


def test_a_broker_is_compared_with_the_mean_of_the_brokers():
    one, two = broker_load(SAMPLES, band=1.5)
    assert (one.dir_id, one.bytes, one.replicas, one.mean_bytes) == (None, 500, 3, 350.0)
    assert (round(one.ratio or 0, 3), one.over_band, two.over_band) == (1.429, False, False)
    assert broker_load(SAMPLES)[0].over_band


def test_what_is_offline_is_told_and_no_part_of_the_mean():
    gone = sample(1, "e", None, topic=None, error="KAFKA_STORAGE_ERROR")
    rows = log_dir_skew([sample(1, "a", 100), sample(1, "b", 100, partition=1), gone])
    assert [(row.path, row.mean_bytes, row.ratio, row.offline) for row in rows] == [
        ("/a", 100.0, 1.0, False),
        ("/b", 100.0, 1.0, False),
        ("/e", 100.0, None, True),
    ]
    (broker,) = broker_load([gone])
    assert (broker.mean_bytes, broker.offline) == (None, True)


def test_a_copy_that_is_being_filled_takes_space_but_is_no_replica():
    _, b = log_dir_skew([sample(1, "a", 100), sample(1, "b", 50, is_future=True)], leaders=[("orders", 0, 1)])
    assert (b.bytes, b.replicas, b.leaders) == (50, 0, 0)


def test_each_time_stands_for_itself_and_leaders_are_known_of_the_newest_only():
    rows = broker_load([sample(1, "a", 100), sample(1, "a", 900, sampled_ms=2000)], leaders=[("orders", 0, 1)])
    assert [(row.as_of, row.bytes, row.ratio, row.leaders) for row in rows] == [(1000, 100, 1.0, None), (2000, 900, 1.0, 1)]


def test_empty_directories_have_no_ratio():
    (row,) = log_dir_skew([sample(1, "a", 0, topic=None)])
    assert (row.mean_bytes, row.ratio, row.over_band) == (0.0, None, False)
