"""A run of `kraftlab chaos test --console` is watched in the browser: its strikes as lanes, its operations as a line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kraftlab.cli import main

from .conftest import BrowserPages

pytestmark = [pytest.mark.cluster, pytest.mark.console]
TEST = (sys.executable, "-m", "kraftlab.cli.main", "chaos", "test", "-w", "registers")


def test_strikes_and_operations_of_a_run_are_on_the_page_while_it_runs(
    starts_clusters: None, tmp_path: Path, browser_page: BrowserPages
) -> None:
    page = browser_page()
    faults = ("-n", "isolate-leader", "--time", "20", "--rate", "20", "--seed", "3", "--store", str(tmp_path))
    command = (*TEST, *faults, "--console", "--console-port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        found = re.fullmatch(r"console: (http://127.0.0.1:\d+/quorum)\n", line)
        assert found is not None, line
        page.goto(found[1])
        expect(page.get_by_text(re.compile(r"chaos test -w registers: clients, \d+ of 20 s, \d+ ok/s"))).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("Faults shown: .*isolate-leader 300")).first).to_be_visible()
        expect(page.get_by_role("link", name="Faults")).to_have_count(0)
        page.goto("about:blank")
        rest = run.stdout.read()
    assert (run.returncode, "valid:" in rest) == (0, True), rest


def test_a_simulated_run_has_no_pages(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("chaos", "test", "-w", "registers", "--world", "simulated", "--console", "--json")
    assert main.run(words) == 64
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "--console shows runs on real processes" in message
