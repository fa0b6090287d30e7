"""One workload, three worlds: the same options and seed run in each, or are refused with the documented reason.
`test_simulated_world.py` plays every workload in the simulator.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jepsen_lite.checkers.judgement import judge
from jepsen_lite.history import OK
from jepsen_lite.runs import EVERY_RUN
from jepsen_lite.workload import Options
from jepsen_lite.workloads import WORKLOADS, workload_named
from jepsen_lite.worlds.shell import run_shell
from jepsen_lite.worlds.world import WORLDS
from kraftlab.cli import main
from kraftlab.common.exit_codes import USAGE

DOCS = Path(__file__).parents[3] / "docs" / "chaos-workloads.md"
CELLS = [(name, world) for name in WORKLOADS for world in WORLDS]
REFUSED = [(name, world) for name, world in CELLS if world in workload_named(name).not_in]
RUN = [cell for cell in CELLS if cell not in REFUSED]
SAME = Options(seed="11", time_s=0.5, rate=80, timeout_ms=1_000, brokers=2)


@pytest.mark.parametrize("name", [name for name, world in RUN if world == "shell"])
def test_a_workload_runs_unchanged_in_the_shell(name: str):
    run = run_shell(workload_named(name), SAME).run
    verdicts = judge(run, (*workload_named(name).checkers(SAME), *EVERY_RUN))
    assert not [verdict for verdict in verdicts if verdict.valid is False]
    assert run.options == SAME
    assert run.history.counts()[OK] > 10


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, world in RUN if world == "real"])
def test_a_workload_runs_unchanged_on_processes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["-w", name, "--seed", SAME.seed, "--time", "2", "--rate", "80", "--brokers", "2", "--store", str(tmp_path), "--json"]
    with pytest.raises(SystemExit):
        main.run(["chaos", "test", *words])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["valid"] is not False
    assert found["lost"] == 0 and found["ops"]["ok"] > 20


@pytest.mark.parametrize(("name", "world"), REFUSED)
def test_one_that_does_not_run_in_a_world_is_refused_with_the_reason(name: str, world: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["chaos", "test", "-w", name, "--world", world]) == USAGE
    assert f"{name} does not run in the world '{world}': {workload_named(name).not_in[world]}; " in capsys.readouterr().err


def test_the_docs_say_which_workloads_run_where():
    rows = [f"| `-w` | {' | '.join(WORLDS)} |", f"| --- |{' --- |' * len(WORLDS)}"]
    for name in WORKLOADS:
        why_not = workload_named(name).not_in
        rows.append(f"| `{name}` | {' | '.join(f'no: {why_not[world]}' if world in why_not else 'runs' for world in WORLDS)} |")
    table = "\n".join(rows)
    assert table in DOCS.read_text(), f"docs/chaos-workloads.md must have this table:\n{table}"
