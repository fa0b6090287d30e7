from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as read

from kraftlab.metrics.catalogue import METRICS
from kraftlab.metrics.exposition import Exposition, beginning, number
from kraftlab.metrics.histogram import Histogram, doubling

TOPIC_SIZE = "kafka_log_log_size"


@given(st.text(), st.one_of(st.floats(), st.integers(-(2**63), 2**63)))
def test_any_label_and_value_is_read_as_it_was_written(label: str, value: float) -> None:
    page = Exposition()
    page.add(TOPIC_SIZE, value, topic=label, partition=0)
    [family] = read(page.text())
    [sample] = family.samples
    assert sample.labels == {"topic": label.encode("utf-8", "replace").decode(), "partition": "0"}
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


def test_families_stand_once_with_type_and_meaning_whatever_the_order_of_their_samples() -> None:
    page = Exposition()
    for topic in ("b", "a"):
        page.add("kafka_server_brokertopicmetrics_bytesin_total", 1, topic=topic)
        page.add(TOPIC_SIZE, 2, topic=topic, partition=0)
    families = {family.name: family for family in read(page.text())}
    assert {name: len(family.samples) for name, family in families.items()} == {
        "kafka_server_brokertopicmetrics_bytesin": 2,
        TOPIC_SIZE: 2,
    }
    assert families[TOPIC_SIZE].documentation == METRICS[TOPIC_SIZE].meaning
    assert families["kafka_server_brokertopicmetrics_bytesin"].type == "counter"


def test_a_name_that_the_catalogue_does_not_have_cannot_be_written() -> None:
    with pytest.raises(KeyError, match="kafka_log_log_sise"):
        Exposition().add("kafka_log_log_sise", 1)


def test_prepared_lines_are_those_of_single_samples() -> None:
    one, other = Exposition(), Exposition()
    one.add(TOPIC_SIZE, 7, topic='a"b\\c\nd', partition=3)
    other.extend(TOPIC_SIZE, [beginning(TOPIC_SIZE, topic='a"b\\c\nd', partition=3) + number(7)])
    assert one.text() == other.text()


@given(st.lists(st.floats(0, 20)))
def test_a_histogram_counts_what_is_up_to_each_bound(values: list[float]) -> None:
    histogram = Histogram(doubling(0.001, 14))
    for value in values:
        histogram.observe(value)
    page = Exposition()
    page.add_histogram("kraftlab_commit_duration_seconds", histogram)
    [family] = read(page.text())
    assert family.type == "histogram"
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            assert sample.value == sum(value <= float(sample.labels["le"]) for value in values)
        else:
            assert sample.value == pytest.approx(len(values) if sample.name.endswith("_count") else sum(values))


def test_the_catalogue_has_sound_rows() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"(kafka|kraftlab|process)_[a-z0-9_]+", name)
        assert metric.kind in ("gauge", "counter", "histogram", "untyped")
        assert metric.nodes in ("controller", "broker", "every node", "lab", "cluster")
        assert metric.meaning.endswith(".") and "\\" not in metric.meaning
        assert bool(metric.kafka) == (name.startswith("kafka_") and metric.nodes != "cluster")
        assert name.endswith(("_total", "_count")) or metric.kind != "counter"
