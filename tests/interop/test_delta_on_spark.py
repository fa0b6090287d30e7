"""Spark with the connector for Delta reads the rows of a lake as the documentation says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.session import java
from kraftlab.pipeline.storage.schemas import arrow_schema

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
TABLE = "silver.partition_changes"
ALL_ROWS = f"""
from pyarrow import feather
feather.write_feather(spark.read.format("delta").load("lake/{TABLE.replace(".", "/")}").toArrow(), "rows")
"""
CENTRAL = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>"""
"""Maven Central alone: a local repository of Maven may have descriptions of packages without the packages."""


def test_the_example_prints_the_rows_of_each_topic_and_all_columns_are_those_of_the_lake(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for lo, topics in ((0, ["gone"] * 9), (0, ["orders", "orders", "payments"]), (9, ["orders"])):
        rows = [{"offset": lo + at, "topic": topic, "replicas": [1, 2], "adding": []} for at, topic in enumerate(topics)]
        with lake.writing():
            lake.commit_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(TABLE)), TABLE, lo, lo + 9)
    (example,) = re.findall(r"```python\n(# Spark with the Delta connector.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "ivy.xml").write_text(CENTRAL)
    arguments = f"--master local[2] --conf spark.jars.ivySettings={tmp_path / 'ivy.xml'} pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": arguments}
    java.ensure(environment)
    command = [sys.executable, "-c", example + ALL_ROWS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if "RuntimeException: [unresolved dependency" in done.stderr or "RuntimeException: [download failed" in done.stderr:
        pytest.skip("Spark cannot download the connector for Delta from Maven Central")
    assert done.returncode == 0, done.stderr
    assert re.search(r"orders\W+3\b", done.stdout)
    assert re.search(r"payments\W+1\b", done.stdout)
    found = feather.read_table(tmp_path / "rows").sort_by("offset")
    assert found.to_pylist() == lake.arrow(TABLE).to_pylist()
