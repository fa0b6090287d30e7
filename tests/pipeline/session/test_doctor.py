"""Findings of the doctor, and the remedies."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.cli import main
from kraftlab.common.exit_codes import MACHINE
from kraftlab.pipeline.session import archive, doctor, factory, java
from kraftlab.pipeline.session.doctor import Check, State

Make = Callable[..., Path]


@pytest.fixture
def environ(fake_java: Make, tmp_path: Path) -> dict[str, str]:
    """A machine on which nothing is missing. Its Java and the workers' Python only say their versions."""
    home = fake_java(tmp_path / "java", "17.0.15")
    python = tmp_path / "workers-python"
    python.write_text(f"#!/bin/sh\necho {sys.version_info.major}.{sys.version_info.minor}\n")
    python.chmod(0o755)
    found = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": str(python)}
    return found | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}


def check(name: str, environ: dict[str, str], state: State | None = None, **options: object) -> Check:
    """The check of that name, and of that state if there are several."""
    report = doctor.examine(environ, **options)  # type: ignore[arg-type]
    return next(each for each in report.checks if each.name == name and state in (None, each.state))


def test_a_machine_that_has_everything_can_run(environ: dict[str, str]) -> None:
    report = doctor.examine(environ)
    assert report.can_run
    assert {each.name for each in report.checks} >= {"packages", "master", "java", "launcher", "archive", "workers' Python"}
    assert all(each.remedy for each in report.checks if each.state is not State.FINE)


def test_a_package_that_is_missing_is_in_the_way(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "pyarrow":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    report = doctor.examine(environ)
    assert not report.can_run
    assert Check("pyarrow", State.MISSING, "not installed", doctor.INSTALL) in report.checks


def test_where_no_package_is_each_is_reported(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main.run(["pipeline", "doctor"]) == MACHINE
    result = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in result if line.startswith("missing")] == list(doctor.NEEDED)
    assert result[-1] == "The pipeline cannot run here."


@pytest.mark.parametrize(("version", "state"), [("4.1.9", State.NOTE), ("4.2.7", State.FINE), ("4.3.0", State.NOTE)])
def test_versions_outside_the_bounds_of_the_package_are_reported(
    version: str, state: State, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version if name == "pyspark" else known(name))
    result = {each.name: each.state for each in doctor.examine(environ).checks}
    assert result.get("pyspark", State.FINE) is state


def test_a_java_home_that_is_passed_over_is_reported(fake_java: Make, environ: dict[str, str], tmp_path: Path) -> None:
    environ["PATH"] = str(fake_java(tmp_path / "good", "21.0.1") / "bin")
    environ["JAVA_HOME"] = str(fake_java(tmp_path / "old", "11.0.2"))
    result = check("JAVA_HOME", environ)
    assert "is Java 11.0.2, too old" in result.found
    assert check("java", environ, State.FINE).found.startswith("21.0.1, from PATH")


def test_a_java_that_was_not_tried_is_taken_and_reported(fake_java: Make, environ: dict[str, str], tmp_path: Path) -> None:
    environ["JAVA_HOME"] = str(fake_java(tmp_path / "new", "31"))
    assert check("java", environ, State.NOTE).found == "Java 31 was not tested; 17, 25 were"


def test_another_spark_in_spark_home_is_in_the_way(environ: dict[str, str], tmp_path: Path) -> None:
    environ["SPARK_HOME"] = str(tmp_path)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").write_text("")
    result = check("SPARK_HOME", environ)
    assert (result.state, result.remedy) == (State.MISSING, "unset SPARK_HOME")
    assert "holds Spark 3.5.1, and the package pyspark is" in result.found


def test_workers_need_a_python_that_has_the_packages(environ: dict[str, str], tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    environ["PYSPARK_PYTHON"] = str(bare)
    result = check("workers' Python", environ)
    assert result.state is State.MISSING and "No module named 'pyarrow'" in result.found
    environ["PYSPARK_PYTHON"] = str(tmp_path / "absent")
    assert "cannot be run" in check("workers' Python", environ).found
    environ["PYSPARK_PYTHON"] = sys.executable
    assert check("workers' Python", environ).state is State.FINE


def test_masters_come_from_the_option_and_else_from_outside(environ: dict[str, str]) -> None:
    assert check("master", environ, master="spark://h:1").found == "spark://h:1, from --master"
    environ["PYSPARK_SUBMIT_ARGS"] = "--master local[7] pyspark-shell"
    assert check("master", environ).found.startswith("local[7], from --conf, PYSPARK_SUBMIT_ARGS")


def test_more_memory_than_there_is_is_reported(environ: dict[str, str]) -> None:
    result = check("memory", environ, conf={"spark.driver.memory": "64t"})
    assert result.state is State.NOTE and "driver 64t" in result.found


def test_a_scratch_directory_that_is_full_or_absent_is_reported(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check("scratch", environ, conf={"spark.local.dir": str(tmp_path / "absent")}).state is State.MISSING
    full = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert check("scratch", environ).state is State.NOTE


def test_archives_of_other_javas_are_not_taken_for_this_ones(fake_java: Make, environ: dict[str, str], tmp_path: Path) -> None:
    one = java.find(environ)
    other = java.Java(fake_java(tmp_path / "other", "17.0.16"), "17.0.16", java.FoundBy.PATH)
    places = [archive.archive_for(each, factory.spark_home(environ), tmp_path / "cache" / "kraftlab") for each in (one, other)]
    for path in (places[1].base, places[1].top):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert not places[0].is_built and places[0].options == []
    assert places[1].options == [f"-XX:SharedArchiveFile={places[1].base}:{places[1].top}"]
    result = [each for each in doctor.examine(environ).checks if each.name == "archive"]
    assert [each.found for each in result] == ["none for this Java and PySpark", "of other Javas or PySparks: 1"]
    assert str(places[1].directory) in result[1].remedy
