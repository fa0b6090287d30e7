"""Workloads on the real runtime under a mock clock: a seed is a run, and bugs of the runtime alone are found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jepsen_lite.checkers.judgement import judge
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.history import OK
from jepsen_lite.runs import EVERY_RUN
from jepsen_lite.store import RunDirectory
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options
from jepsen_lite.workloads import workload_named
from jepsen_lite.worlds import phases
from jepsen_lite.worlds.shell import LOG_NAME, ShellRun, run_shell
from jepsen_lite.worlds.shell_kinds import SHELL_KINDS
from jepsen_lite.worlds.world import WorldFailed, kinds_of
from kraftlab.broker.log.log_dir import LogDir
from kraftlab.broker.log.producer_state import ProducerState
from kraftlab.checking import scratch_directory
from kraftlab.cli import main
from kraftlab.common.exit_codes import USAGE
from kraftlab.common.signal import Signal
from kraftlab.quorum.core.effects import Append
from kraftlab.quorum.driver.storage_tasks import LogFlusher
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFile
from kraftlab.simulation.runtime.machine import STARTED_S

from ...helpers.waiting import wait_until

QUICK = Options(time_s=1.5, timeout_ms=1_000, rate=80, brokers=1)


def with_seed(seed: int) -> Options:
    return msgspec.structs.replace(QUICK, seed=str(seed))


def bad(name: str, played: ShellRun) -> list[Verdict]:
    checkers = (*workload_named(name).checkers(played.run.options), *EVERY_RUN)
    return [verdict for verdict in judge(played.run, checkers) if verdict.valid is False]


def test_on_a_calm_cluster_everything_is_answered_and_the_log_is_known_from_its_beginning():
    played = run_shell(workload_named("registers"), with_seed(1))
    assert not bad("registers", played)
    assert played.run.history.counts()[OK] > 60
    assert played.run.log is not None
    assert played.run.log.start == 0
    assert {"LeaderChange", "Topic", "RequestOutcome"} <= {entry.kind for entry in played.run.log.entries}
    assert {seen.leader for seen in played.run.observations if seen.is_up} != {-1}


@pytest.mark.parametrize(("name", "seed"), [("agreement", 2), ("soak", 1)])
def test_while_nodes_die_and_links_break_nothing_is_wrong(name: str, seed: int):
    played = run_shell(workload_named(name), with_seed(seed), nemeses=("kill", "partition"))
    assert not bad(name, played), "\n".join(played.log)
    assert played.run.history.counts()[OK] > 20
    assert {"kill", "partition"} <= {strike.kind for strike in played.run.strikes if not strike.error}


def test_bad_links_and_paused_nodes_do_no_harm():
    names = ("pause", "isolate-leader", "one-way", "late", "slow", "loss", "duplicate", "reorder")
    played = run_shell(workload_named("registers"), with_seed(6), nemeses=names)
    assert not bad("registers", played), "\n".join(played.log)
    assert played.run.history.counts()[OK] > 20


DISKS_AND_VOTERS: tuple[tuple[str, dict[str, object]], ...] = (
    ("power-loss", {}),
    ("slow-disk", {"delay_ms": 200}),
    ("bit-rot", {}),
    ("disk-full", {}),
    ("torn", {}),
    ("membership", {"wipe": True}),
    ("disk-error", {}),
)


def test_nodes_repair_damaged_disks_and_voters_themselves():
    strikes = [
        Action(at_ms=300 + 600 * place, kind=kind, target="leader", for_ms=300, number=place, arguments=arguments)
        for place, (kind, arguments) in enumerate(DISKS_AND_VOTERS)
    ]
    options = msgspec.structs.replace(with_seed(3), time_s=5)
    played = run_shell(workload_named("registers"), options, FaultPlan(seed="3", actions=tuple(strikes)))
    assert not bad("registers", played), "\n".join(played.log)
    assert played.run.history.counts()[OK] > 100
    assert [(strike.kind, strike.error) for strike in played.run.strikes] == [(kind, "") for kind, _ in DISKS_AND_VOTERS]
    assert any("repair" in line for line in played.log)


def on_brokers(*kinds: tuple[str, str, dict[str, object]], for_ms: int = 1_500) -> FaultPlan:
    """Return strikes at brokers, far enough apart that each broker is in sync again before the next."""
    return FaultPlan(
        seed="3",
        actions=tuple(
            Action(at_ms=700 + 4_700 * place, kind=kind, target=target, for_ms=for_ms, number=place, arguments=arguments)
            for place, (kind, target, arguments) in enumerate(kinds)
        ),
    )


@pytest.mark.nightly
def test_damaged_disks_of_brokers_lose_no_record() -> None:
    kinds: tuple[tuple[str, str, dict[str, object]], ...] = (
        ("power-loss", "broker:0", {}),
        ("bit-rot", "broker:1", {}),
        ("torn", "broker:0", {}),
        ("disk-full", "broker:1", {}),
        ("slow-disk", "broker:0", {"delay_ms": 100}),
        ("disk-error", "broker:1", {}),
    )
    options = msgspec.structs.replace(with_seed(3), time_s=30, brokers=2, rate=60)
    played = run_shell(workload_named("log-dirs"), options, on_brokers(*kinds))
    assert not bad("log-dirs", played), "\n".join(played.log)
    assert [(strike.kind, strike.error) for strike in played.run.strikes] == [(kind, "") for kind, _, _ in kinds]
    cut = [line for line in played.log if "was truncated to offset" in line]
    assert any("broker-1" in line and "the header says" in line for line in cut), "rot"
    assert any("broker-0" in line and "cut short" in line for line in cut), "a torn batch"


@pytest.mark.nightly
def test_a_broker_that_trusts_its_disk_after_a_crash_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = on_brokers(("bit-rot", "broker:0", {}), ("kill", "broker:1", {}), for_ms=2_500)
    options = msgspec.structs.replace(with_seed(2), time_s=9, brokers=2, rate=60)
    assert not bad("log-dirs", run_shell(workload_named("log-dirs"), options, plan))
    monkeypatch.setattr(LogDir, "take_clean_mark", lambda log_dir: setattr(log_dir, "was_clean", True))
    monkeypatch.setattr(phases, "FINAL_WITHIN_S", 1.0)
    found = bad("log-dirs", run_shell(workload_named("log-dirs"), options, plan))
    assert "moved-data" in {verdict.checker for verdict in found}


RECORDS = msgspec.structs.replace(with_seed(3), time_s=8, brokers=3, rate=60)


def test_a_batch_sent_again_is_stored_once_while_its_partition_moves_and_is_compacted() -> None:
    played = run_shell(workload_named("records"), RECORDS, nemeses=("kill", "pause"))
    assert not bad("records", played), "\n".join(played.log)
    assert {"append", "move", "reassign"} <= {op.f for op in played.run.history if op.outcome == OK}
    assert any("records-3-0: compacted to offset" in line for line in played.log)
    assert {line.split()[2] for line in played.log if "deleted by retention" in line} == {"records-2-0:"}


@pytest.mark.nightly
def test_a_broker_that_stores_every_batch_it_gets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "find_duplicates", lambda *_: [])
    monkeypatch.setattr(ProducerState, "check", lambda *_: None)
    options = msgspec.structs.replace(with_seed(2), time_s=3, brokers=2, rate=100)
    verdicts = bad("records", run_shell(workload_named("records"), options, nemeses=("loss", "late", "slow")))
    assert [verdict.checker for verdict in verdicts] == ["kept-records"]
    assert "doubled" in verdicts[0].details["violations"]


SHOW = """
from jepsen_lite.worlds import phases
from jepsen_lite.worlds.shell import run_shell
from jepsen_lite.workloads import workload_named
from jepsen_lite.workload import Options
import hashlib, msgspec
options = Options(seed="7", time_s=1, timeout_ms=1_000, rate=60, brokers=2)
played = run_shell(workload_named("log-dirs"), options, nemeses=("kill", "pause", "torn", "clock", "power-loss", "membership"))
told = msgspec.json.encode((list(played.run.history), played.run.log, played.run.strikes, played.log))
shown = f"{played.steps} {hashlib.sha256(told).hexdigest()}"
"""


def test_a_seed_is_the_same_history_log_and_steps_in_every_process_however_it_hashes():
    here: dict[str, str] = {}
    exec(SHOW, here)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-c", f"{SHOW}print(shown)"]
    there = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
    assert there.strip() == here["shown"]


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for a cluster that does not recover."""
    monkeypatch.setattr(phases, "READY_WITHIN_S", 5.0)


def deaths_of_all(kind: str = "kill") -> FaultPlan:
    """Return a plan that kills all controllers at once, repeatedly."""
    times = range(300, 1_400, 450)
    return FaultPlan(
        seed="8",
        actions=tuple(Action(at_ms=at, kind=kind, target="controllers", for_ms=50, number=n) for n, at in enumerate(times)),
    )


@pytest.mark.usefixtures("short_patience")
def test_a_driver_that_answers_before_the_batch_is_on_the_disk_is_found(monkeypatch: pytest.MonkeyPatch):
    append, kick = LogFlusher.append, LogFlusher.kick

    def answering(writer: LogFlusher, effect: Append) -> None:
        append(writer, effect)
        writer.on_durable(effect.append_id)

    def waiting_for_more(writer: LogFlusher) -> None:
        if writer.staged_bytes > 4_000:
            kick(writer)

    assert not bad("registers", run_shell(workload_named("registers"), with_seed(8), deaths_of_all()))
    monkeypatch.setattr(LogFlusher, "append", answering)
    monkeypatch.setattr(LogFlusher, "kick", waiting_for_more)
    found = bad("registers", run_shell(workload_named("registers"), with_seed(8), deaths_of_all()))
    assert "safety" in {verdict.kind for verdict in found}


@pytest.mark.nightly
@pytest.mark.usefixtures("short_patience")
def test_a_log_whose_fsync_does_nothing_is_found_when_the_power_goes(monkeypatch: pytest.MonkeyPatch):
    sync = SimulatedFile.fdatasync

    def synced(file: SimulatedFile) -> None:
        if not file.path.endswith(".log"):
            sync(file)

    assert not bad("registers", run_shell(workload_named("registers"), with_seed(8), deaths_of_all("power-loss")))
    monkeypatch.setattr(SimulatedFile, "fdatasync", synced)
    found = bad("registers", run_shell(workload_named("registers"), with_seed(8), deaths_of_all("power-loss")))
    assert found


def test_a_lost_wake_up_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Signal, "set", lambda signal: signal.sleepers.unpark())
    with pytest.raises(WorldFailed, match=r"the cluster did not come up: .*, after 30 s"):
        run_shell(workload_named("registers"), with_seed(4))


def test_wrong_clocks_do_no_harm_and_affect_only_their_nodes():
    told: tuple[tuple[str, dict[str, object]], ...] = (
        ("follower", {"jump_ms": 5_000}),
        ("leader", {"rate": 2.0}),
        ("controllers", {"set_ms": -3_600_000}),
        ("broker", {"rate": 0.5}),
    )
    strikes = [
        Action(at_ms=200 + 500 * place, kind="clock", target=target, for_ms=400, number=place, arguments=arguments)
        for place, (target, arguments) in enumerate(told)
    ]
    options = msgspec.structs.replace(with_seed(4), time_s=2.5)
    played = run_shell(workload_named("registers"), options, FaultPlan(seed="4", actions=tuple(strikes)))
    assert not bad("registers", played), "\n".join(played.log)
    assert [strike.error for strike in played.run.strikes] == [""] * len(told)
    jumped = played.run.strikes[0]
    began_s = played.run.started_at_ms / 1000 - STARTED_S
    late = [line for line in played.log if 0 <= float(line.split()[0]) - began_s - jumped.begin_ns / 1e9 < 0.1]
    assert any(f"node {jumped.nodes[0]}" in line and "prospective" in line for line in late), (
        "it has not heard of anybody in time"
    )


def test_unavailable_nemeses_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(WorldFailed, match="earthquake is not available in the world shell; available: kill, pause"):
        run_shell(workload_named("registers"), QUICK, FaultPlan(seed="1", actions=(Action(at_ms=1, kind="earthquake"),)))
    assert main.run(["chaos", "test", "-w", "registers", "-n", "earthquake", "--world", "shell"]) == USAGE
    assert "unknown nemesis earthquake" in capsys.readouterr().err
    assert main.run(["chaos", "test", "-w", "elections", "--brokers", "0", "--world", "shell"]) == USAGE
    assert "'--brokers': 0 is not in the range x>=1" in capsys.readouterr().err
    assert tuple(SHELL_KINDS) == kinds_of("shell")


def test_a_run_is_kept_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = str(tmp_path)
    asked = ["--world", "shell", "--time", "0.5", "--rate", "40", "--seed", "9", "--brokers", "1", "--store", store, "--json"]
    shown = []
    for command in (["test", "-w", "registers", "-n", "kill", *asked], ["replay", "latest", "--store", store, "--json"]):
        with pytest.raises(SystemExit):
            main.run(["chaos", *command])
        shown.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    first, again = (RunDirectory(Path(one["run"])) for one in shown)
    assert first.path != again.path
    assert list(first.run().history) == list(again.run().history)
    assert "-> leader" in (first.nodes / LOG_NAME).read_text()


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals):
    monkeypatch.setattr(scratch_directory, "BEING_MADE_S", 0.0)
    before = run_directories()
    command = ("-m", "kraftlab.cli.main", "chaos", "test", "-w", "registers", "-n", "kill", "--world", "shell", "--time", "3600")
    many = ("--test-count", "2", "--jobs", "2", "--store", str(tmp_path / "runs"))
    with subprocess.Popen([sys.executable, *command, *many], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(run_directories() - before) == 2, "they play")
            process.send_signal(how)
            process.wait(30)
        finally:
            process.kill()
    wait_until(lambda: not run_directories() - before, "their processes tidy up, or a later run does")


def run_directories() -> set[Path]:
    """Return the directories of runs in progress; those that killed runs left are removed."""
    scratch_directory.remove_abandoned()
    return set(scratch_directory.place().glob(f"{scratch_directory.MARK}*"))


def test_paused_nodes_do_nothing():
    pause = Action(at_ms=400, kind="pause", target="all", for_ms=700)
    options = msgspec.structs.replace(with_seed(5), brokers=2)
    played = run_shell(workload_named("registers"), options, FaultPlan(seed="5", actions=(pause,)))
    (strike,) = played.run.strikes
    began_s = played.run.started_at_ms / 1000 - STARTED_S
    times = [float(line.split()[0]) - began_s for line in played.log]
    assert strike.end_ns is not None
    assert not [at for at in times if strike.begin_ns / 1e9 < at < strike.end_ns / 1e9]
    assert any(at > strike.end_ns / 1e9 for at in times), "and that time has passed is seen at once"
    assert not bad("registers", played), "\n".join(played.log)
