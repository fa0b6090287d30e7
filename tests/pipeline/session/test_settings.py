"""Settings: the user's own, set outside, take precedence over the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.pipeline.errors import EnvironmentFault
from kraftlab.pipeline.session import settings
from kraftlab.pipeline.session.settings import Reach


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("pyspark-shell", {}),
        ("--master spark://h:7077 pyspark-shell", {"spark.master": "spark://h:7077"}),
        ("--master=local[3] --driver-memory 4g pyspark-shell", {"spark.master": "local[3]", "spark.driver.memory": "4g"}),
        ("--conf spark.a=b=c -c 'spark.d=e f' pyspark-shell", {"spark.a": "b=c", "spark.d": "e f"}),
        ("--jars x.jar pyspark-shell", {}),
    ],
)
def test_submit_arguments_are_read(arguments: str, given: dict[str, str], tmp_path: Path) -> None:
    assert settings.given_outside({"PYSPARK_SUBMIT_ARGS": arguments}, tmp_path) == given


def test_submit_arguments_that_no_shell_could_split_are_reported(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"PYSPARK_SUBMIT_ARGS is .*: No closing quotation; correct it, or unset it"):
        settings.given_outside({"PYSPARK_SUBMIT_ARGS": "--conf 'spark.a=b pyspark-shell"}, tmp_path)


def test_defaults_that_are_not_all_text_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_bytes(b"spark.app.name caf\xe9\nspark.b 2\n")
    found = settings.given_outside({"SPARK_CONF_DIR": str(tmp_path)}, Path("/nowhere"))
    assert found == {"spark.app.name": "caf\ufffd", "spark.b": "2"}


def test_defaults_are_read_from_the_directory_that_spark_reads(tmp_path: Path) -> None:
    text = "# spark.a 1\n\nspark.master   spark://h:7077\nspark.b=2\nspark.c -Dx=y -Dz\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    expected = {"spark.master": "spark://h:7077", "spark.b": "2", "spark.c": "-Dx=y -Dz"}
    assert settings.given_outside({}, tmp_path) == expected
    assert settings.given_outside({"SPARK_CONF_DIR": str(tmp_path / "conf")}, Path("/nowhere")) == expected
    assert settings.given_outside({"PYSPARK_SUBMIT_ARGS": "--master local"}, tmp_path)["spark.master"] == "local"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*,3]", True),
        ("local-cluster[1,1,1024]", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_local_masters_are_those_that_share_this_machines_files(master: str, local: bool) -> None:
    assert settings.is_local(master) is local


def test_a_cluster_keeps_its_own_addresses_and_partitions() -> None:
    elsewhere = settings.wanted({Reach.ANY, Reach.CONTEXT, Reach.JVM}, 2)
    here = settings.wanted(set(Reach), 2)
    only_here = {"spark.ui.enabled", "spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"}
    assert here.keys() - elsewhere.keys() == only_here
    assert here["spark.sql.shuffle.partitions"] == "4"


def test_the_documentation_lists_every_setting() -> None:
    text = (Path(__file__).parents[3] / "docs" / "pipeline-reference.md").read_text()
    rows = [f"| `{setting.key}` | `{setting.value}` | {setting.reach.value}: {setting.about} |" for setting in settings.SETTINGS]
    assert [row for row in rows if row not in text] == []
