"""Failover by the number of partitions: figures of given rows, and a small cluster."""

from __future__ import annotations

import pytest

from kraftlab.experiments import failover_by_partitions as experiment
from kraftlab.experiments.experiment import Row, trial
from kraftlab.experiments.large_metadata import records
from kraftlab.experiments.statistics import log_slope
from kraftlab.metadata.records import Partition, RegisterBroker


def row(partitions: int, what: str, value: float) -> Row:
    return {"line": f"{partitions:,} partitions", "partitions": partitions, "what": what, "value": value, "records": partitions}


LINES = (*experiment.CONTROLLER_LINES, *experiment.BROKER_LINES, experiment.MEMORY)
ROWS = [
    row(partitions, what, 0.1 if what == experiment.HOT else partitions / 1000)
    for what in LINES
    for partitions in (100, 10_000)
    for _ in range(3)
]


def test_a_slope_is_0_if_the_size_does_not_matter_and_1_if_time_grows_with_it() -> None:
    assert log_slope({100: 0.2, 1_000: 0.2}) == pytest.approx(0)
    assert log_slope({100: 0.2, 1_000: 2.0, 10_000: 20.0}) == pytest.approx(1)
    assert log_slope({100: 0.2}) == 0


def test_the_slope_of_each_line_is_in_the_text() -> None:
    assert f"{experiment.HOT} 0.00, {experiment.RELOAD} 1.00" in experiment.figures(ROWS)[0].caption
    assert experiment.measured(ROWS)[f"{experiment.HOT}, 10,000 partitions"].value == 0.1
    assert any("up to 10,000 records" in each for each in experiment.remarks(ROWS))


def test_unchecked_numbers_say_so() -> None:
    assert all("unchecked" in each.source for each in experiment.EXPERIMENT.published)


def test_the_metadata_has_the_partitions_that_were_asked_for() -> None:
    made = [record for batch in records(250, brokers=10) for record in batch]
    assert sum(isinstance(each, Partition) for each in made) == 250
    assert sum(isinstance(each, RegisterBroker) for each in made) == 10


@pytest.mark.nightly
@pytest.mark.cluster
def test_a_trial_measures_controllers_and_brokers() -> None:
    rows = experiment.run_trial(trial("300 partitions", 0, 1, partitions=300))
    assert {each["what"] for each in rows} == {*LINES}
    assert all(float(each["value"]) > 0 for each in rows)
    moved = [int(each["records"]) for each in rows if each["what"] in experiment.BROKER_LINES]
    assert min(moved) > 300 * 3 // 10 // 2, "a broker has a replica of about three tenths of the partitions"
