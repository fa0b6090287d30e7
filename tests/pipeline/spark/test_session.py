"""The session that the factory makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.session import factory
from kraftlab.pipeline.session.settings import SETTINGS, Master, Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_that_runs_is_handed_out_and_left_alone(spark: SparkSession) -> None:
    with factory.session() as again:
        assert again is spark
    assert spark.range(3).count() == 3


def test_another_master_than_that_of_the_session_that_runs_is_refused(spark: SparkSession) -> None:
    with pytest.raises(WrongUse, match=r"local\[2\] runs in this process"):
        factory.create(master="local[7]")
    assert factory.master_of(spark) == Master("local[2]", shares_files=True)


def test_settings_hold_unless_the_caller_says_otherwise(spark: SparkSession) -> None:
    said = {"spark.driver.memory": "1g"}
    for setting in SETTINGS:
        assert spark.conf.get(setting.key) == said.get(setting.key, setting.value), setting
    assert {setting.reach for setting in SETTINGS} == set(Reach)


def test_workers_run_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    def interpreter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(interpreter, "path string").collect()
    assert [row.path for row in rows] == [sys.executable]
