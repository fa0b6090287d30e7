"""Other programs read a lake as the documentation says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.storage.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = Path(__file__).parents[3] / "docs" / "pipeline.md"
TABLE = "silver.partition_changes"


def _example(reader: str) -> str:
    """Return the code of the documentation for a reader."""
    (code,) = re.findall(rf"```python\n(# {reader}: .*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(code)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with a range of three rows, of which one replaces an earlier one, and the working directory next to it."""
    monkeypatch.chdir(tmp_path)
    lake = Lake("lake")
    for values in (["gone"] * 9, ["orders", "orders", "payments"]):
        rows = [{"offset": offset, "topic": topic, "replicas": [1, 2]} for offset, topic in enumerate(values)]
        with lake.writing():
            lake.commit_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(TABLE)), TABLE, 0, 9)
    return tmp_path / "lake"


@pytest.mark.parametrize(("reader", "package"), [("pandas", "pandas"), ("Polars", "polars")])
def test_the_example_prints_the_rows_of_each_topic(
    reader: str, package: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(package)
    exec(_example(reader), {})
    printed = capsys.readouterr().out
    assert re.search(r"orders\W+2\b", printed)
    assert re.search(r"payments\W+1\b", printed)
    assert "gone" not in printed


@pytest.mark.nightly
def test_the_example_for_spark_prints_the_rows_of_each_topic(
    spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(_example("Spark"), {})
    printed = capsys.readouterr().out
    assert re.search(r"orders\W+2\b", printed)
    assert "gone" not in printed
