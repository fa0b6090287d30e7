"""The hosted workflow runs what `.ci/run` runs, on the versions of Python that the package promises."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_workflow_runs_the_commands_of_the_script_in_their_order() -> None:
    of_script = re.findall(r"^time (make \w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert re.findall(r"^ +- run: (.+)$", WORKFLOW, re.MULTILINE) == of_script == ["make lint", "make test"]


def test_the_workflow_tries_every_promised_version_of_python() -> None:
    (tried,) = re.findall(r"python: \[(.+)\]", WORKFLOW)
    versions = re.findall(r'"([\d.]+)"', tried)
    assert versions == re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_the_workflow_has_a_limit_and_no_secrets() -> None:
    assert "timeout-minutes:" in WORKFLOW
    assert "cancel-in-progress: true" in WORKFLOW
    assert "secrets" not in WORKFLOW
    assert "\t" not in WORKFLOW
