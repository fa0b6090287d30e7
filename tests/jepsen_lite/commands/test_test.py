"""`kraftlab chaos test` and `test-all`, with a world that runs nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from jepsen_lite import runs
from jepsen_lite.checkers.stats import Course
from jepsen_lite.command import chaos
from jepsen_lite.commands import test_all
from jepsen_lite.commands.trial_options import workers
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.faults.kinds import ALL, KINDS
from jepsen_lite.history import History, Op
from jepsen_lite.store import RunDirectory, StoreError
from jepsen_lite.workload import Options, Run, Workload
from jepsen_lite.workloads import KAFKA_CLIENTS, NAMES
from jepsen_lite.worlds.world import NotOnThisMachine, PlayedRun, WorldFailed
from kraftlab.checking.facts import Strike
from kraftlab.cli.output import CommandFailed

OK = Op(index=0, process=0, f="get", outcome="ok", invoked_ns=1, ended_ns=2, node=1)
PLAN = FaultPlan(seed="1", actions=(Action(at_ms=1, kind="kill"),))


class World:
    """A world that returns prepared results by workload, and records its assignments."""

    def __init__(self):
        self.given, self.gives = [], {}

    def __call__(self, assignment):
        self.given.append(assignment)
        found = self.gives.get(assignment.workload.name, {})
        if isinstance(found, BaseException):
            raise found
        assignment.listener.ended(OK)
        fields = {"ended_ns": 3 * 10**9, "strikes": (Strike(kind="kill", begin_ns=1, end_ns=2, nodes=(1,)),), **found}
        return PlayedRun(Run(options=assignment.options, history=History([OK]), **fields), PLAN)


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(runs, "world_named", lambda name: made)
    monkeypatch.setattr(runs, "EVERY_RUN", (Course(),))
    monkeypatch.setattr(
        runs,
        "workload_named",
        lambda name: Workload(name, lambda *_: None, lambda _: (), None, lambda _: ()),  # type: ignore[arg-type, return-value]
    )
    return made


def invoke(tmp_path, *words):
    """Return (exit code, stdout, the error message)."""
    result = CliRunner().invoke(chaos, [*words, "--store", str(tmp_path)])
    error = result.exception
    if isinstance(error, CommandFailed):
        return error.exit_code, result.stdout, error.text
    return result.exit_code, result.stdout, ""


def test_a_valid_run_ends_with_its_verdicts_and_where_it_is(world, tmp_path):
    code, told, _ = invoke(tmp_path, "test", "-w", "topics", "-n", "kill,pause", "--seed", "7", "--concurrency", "2n")
    assert code == 0
    directory = RunDirectory.find("latest", tmp_path)
    lines = told.splitlines()
    assert lines[0].split() == ["checker", "valid", "kind", "seconds", "reason"]
    assert lines[1].split()[:3] == ["course", "valid", "safety"]
    assert "valid: 1 ok, 0 fail, 0 info; 1 faults injected" in lines
    assert any(line.startswith("run") and line.endswith(directory.path.name) for line in lines)
    assert lines[-1].endswith(directory.record().command)
    record = directory.record()
    assert (record.workload, record.nemeses, record.options.concurrency) == ("topics", ("kill", "pause"), 12)
    assert directory.plan() == PLAN
    assert (directory.report / "index.html").is_file()


def test_json_is_one_line(world, tmp_path):
    code, told, _ = invoke(tmp_path, "test", "-w", "topics", "--json")
    assert code == 0
    assert json.loads(told) == {
        "valid": True,
        "ops": {"ok": 1, "fail": 0, "info": 0},
        "lost": 0,
        "run": str(RunDirectory.find("latest", tmp_path).path),
    }


def test_a_fault_that_this_machine_cannot_have_ends_with_70(world, tmp_path):
    world.gives = {"topics": NotOnThisMachine("power-loss is not available on this machine")}
    assert invoke(tmp_path, "test", "-w", "topics", "-n", "power-loss")[::2] == (
        70,
        "Error: power-loss is not available on this machine",
    )


@pytest.mark.parametrize(
    ("found", "code", "valid"),
    [
        ({"violations": ("two leaders in epoch 3",)}, 1, False),
        ({"not_ready": "no controller leads"}, 1, False),
        ({"cut_short": "SIGINT"}, 2, "unknown"),
    ],
)
def test_the_exit_code_is_that_of_the_worst_run(world, tmp_path, found, code, valid):
    world.gives = {"topics": found}
    ended, told, _ = invoke(tmp_path, "test", "-w", "registers,topics", "--json")
    summed = json.loads(told)
    assert (ended, summed["valid"], summed["ops"]["ok"], len(summed["runs"])) == (code, valid, 2, 2)
    assert "/topics/" in summed["run"]


@pytest.mark.parametrize(("words", "controllers"), [((), 5), (("--controllers", "3"), 3)])
def test_a_workload_gets_its_own_number_of_controllers_by_default(world, tmp_path, words, controllers):
    invoke(tmp_path, "test", "-w", "voters", *words)
    assert [assignment.options.controllers for assignment in world.given] == [controllers]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-w", "regsters"), "unknown workload 'regsters'; known: registers"),
        (("-w", "registers", "-n", "fire"), "unknown nemesis fire; known: kill"),
        (
            ("-w", "registers", "-n", "move-dirs", "--world", "simulated"),
            "move-dirs is not available in --world simulated; available: kill",
        ),
        (("-w", ","), "-w names no workload; known: registers"),
        (("-w", "registers", "--concurrency", "many"), "invalid number of workers many"),
        (("-w", "registers", "--concurrency", "²"), "invalid number of workers ²"),
        (("-w", "registers", "--time", "nan"), "nan is not a finite number"),
        (("-w", "registers", "--time", "30s"), "'30s' is not a valid number"),
        (("-w", "registers", "--rate", "inf"), "inf is not a finite number"),
        (("-w", "registers", "--world", "moon"), "'moon' is not one of 'real', 'shell', 'simulated'"),
        (("-w", "registers", "--leave-running", "--test-count", "2"), "--leave-running is for one run"),
        (("-w", "registers", "--seeds", "2"), "--seeds is for --world simulated"),
        (("-w", "registers", "--seeds", "2", "--test-count", "2", "--world", "simulated"), "excludes --test-count"),
        (("-w", "registers", "--net", "moon"), "'moon' is not one of 'links', 'netns'"),
        (
            ("-w", "registers", "--net", "netns", "--world", "simulated"),
            "--net netns is for real processes, not for --world simulated",
        ),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(tmp_path, words, text):
    code, _, said = invoke(tmp_path, "test", *words)
    assert code == 64 and text in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_another_net_is_given_it_and_can_be_had_again(world, tmp_path, monkeypatch):
    code, told, _ = invoke(tmp_path, "test", "-w", "topics", "-n", "loss,all", "--net", "netns")
    assert code == 0
    assert told.splitlines()[-1].endswith(" --net netns")
    assert [given.net for given in world.given] == ["netns"]


def test_several_seeds_follow_the_first(world, tmp_path):
    invoke(tmp_path, "test", "-w", "topics", "--seed", "41", "--test-count", "3", "--json")
    invoke(tmp_path, "test", "-w", "topics", "--seed", "blue", "--test-count", "2", "--json")
    assert [given.options.seed for given in world.given] == ["41", "42", "43", "blue", "blue-2"]


def test_nothing_runs_after_one_that_was_cut_short(world, tmp_path):
    world.gives = {"registers": {"cut_short": "SIGINT"}}
    invoke(tmp_path, "test", "-w", "registers,topics", "--json")
    assert [given.workload.name for given in world.given] == ["registers"]


def test_ctrl_c_before_a_run_is_kept_still_reports_earlier_runs(world, tmp_path, monkeypatch):
    world.gives = {"topics": KeyboardInterrupt()}
    code, told, _ = invoke(tmp_path, "test", "-w", "registers,topics,exactly-once", "--json")
    found = json.loads(told.splitlines()[-1])
    assert (code, found["ops"]["ok"], found["valid"]) == (2, 1, "unknown")
    cells = [test_all.Cell(name, ("kill",), 5.0) for name in ("registers", "topics", "exactly-once")]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    code, told, _ = invoke(tmp_path, "test-all")
    assert code == 2
    assert [line.split(";")[0] for line in told.splitlines()[-1:]] == ["1 runs: 1 valid, 2 not begun"]
    assert [given.workload.name for given in world.given] == ["registers", "topics"] * 2


def test_a_failed_harness_gives_the_error_and_exits_with_255(world, tmp_path):
    world.gives = {"topics": WorldFailed("the cluster did not come up"), "registers": ZeroDivisionError("by zero")}
    assert invoke(tmp_path, "test", "-w", "topics")[::2] == (1, "Error: the cluster did not come up")
    code, _, text = invoke(tmp_path, "test", "-w", "registers", "--seed", "3")
    assert code == 1 and "the harness failed: ZeroDivisionError: by zero; run again: kraftlab chaos test -w registers" in text


def test_a_failed_harness_reports_earlier_runs(world, tmp_path):
    world.gives = {"registers": {"violations": ("two leaders in epoch 3",)}, "exactly-once": WorldFailed("no cluster")}
    code, told, _ = invoke(tmp_path, "test", "-w", "registers,exactly-once,topics", "--json")
    found = json.loads(told.splitlines()[-1])
    assert (code, found["valid"], found["ops"]["ok"], "/registers/" in found["run"]) == (1, False, 1, True)
    assert [given.workload.name for given in world.given] == ["registers", "exactly-once"]
    code, told, _ = invoke(tmp_path, "test", "-w", "topics,exactly-once")
    assert (code, told.splitlines()[-1]) == (1, "Error: no cluster")
    code, told, _ = invoke(tmp_path, "test", "-w", "topics,exactly-once", "--json")
    assert (code, json.loads(told.splitlines()[-1])["valid"]) == (1, "unknown")


def test_a_nemesis_may_strike_in_one_world_only(world, tmp_path):
    code, _, _ = invoke(tmp_path, "test", "-w", "registers", "-n", "clock", "--world", "simulated")
    assert code == 0
    assert [given.nemeses for given in world.given] == [("clock",)]


def test_a_matrix_prints_a_line_for_each_run_and_goes_on_after_one_that_failed(world, tmp_path, monkeypatch):
    cells = [test_all.Cell(name, ("kill",), 5.0) for name in ("registers", "topics", "exactly-once")]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    world.gives = {"registers": WorldFailed("no cluster"), "topics": {"not_ready": "no controller leads"}}
    code, told, _ = invoke(tmp_path, "test-all", "--time", "2")
    assert code == 1
    *lines, last = told.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["unknown", "registers", "kill"],
        ["INVALID", "topics", "kill"],
        ["valid", "exactly-once", "kill"],
    ]
    assert last.startswith("3 runs: 1 unknown, 1 INVALID, 1 valid; operations: ok ")
    assert {given.options.time_s for given in world.given} == {2.0}


def test_a_matrix_goes_on_after_a_run_that_could_not_be_kept_unless_it_is_the_first(world, tmp_path, monkeypatch):
    cells = [test_all.Cell(name, ("kill",), 5.0) for name in ("registers", "topics", "exactly-once")]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    world.gives = {"topics": StoreError("cannot keep runs in there: No space left on device")}
    code, told, _ = invoke(tmp_path, "test-all")
    assert (code, told.splitlines()[-1].split(";")[0]) == (1, "3 runs: 2 valid, 1 unknown")
    world.gives = {"registers": StoreError("cannot keep runs in there: Permission denied")}
    code, told, text = invoke(tmp_path, "test-all")
    assert (code, told, text) == (1, "", "Error: cannot keep runs in there: Permission denied")


def test_a_matrix_without_time_begins_no_more_runs(world, tmp_path, monkeypatch):
    cells = [test_all.Cell(name, ("kill",), 5.0) for name in ("registers", "topics", "exactly-once")]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    code, told, _ = invoke(tmp_path, "test-all", "--within", "0", "--seed", "3")
    assert code == 2, "runs that were not begun are unknown"
    assert told.startswith("0 runs: none, 3 not begun")
    invoke(tmp_path, "test-all", "--within", "3600", "--seed", "3")
    ordered = [given.workload.name for given in world.given]
    assert sorted(ordered) == ["exactly-once", "registers", "topics"]
    invoke(tmp_path, "test-all", "--within", "3600", "--seed", "3")
    assert [given.workload.name for given in world.given][3:] == ordered
    seeds = [given.options.seed for given in world.given]
    assert seeds[3:] == seeds[:3] and len(set(seeds[:3])) == 3, "each run's chance is its own, and follows from the seed"


def test_a_matrix_leaves_out_unsupported_faults_and_says_so(world, tmp_path, monkeypatch):
    cells = [test_all.Cell("topics", nemeses, 5.0) for nemeses in (("power-loss",), ("kill",), (ALL,))]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    monkeypatch.setattr(test_all, "available_kinds", lambda net: ("kill", "pause"))
    _, told, _ = invoke(tmp_path, "test-all")
    assert told.startswith("left out, since this machine does not support it: power-loss; see kraftlab chaos doctor")
    assert [given.nemeses for given in world.given] == [("kill",), (ALL,)]


def test_a_matrix_of_another_client_has_the_workloads_that_it_plays(world, tmp_path, monkeypatch):
    cells = [test_all.Cell(name, ("kill",), 5.0) for name in NAMES]
    monkeypatch.setitem(test_all.MATRICES, "ci", lambda: cells)
    assert invoke(tmp_path, "test-all", "--client", "kafka-python")[0] == 0
    assert {given.workload.name for given in world.given} == set(KAFKA_CLIENTS)
    assert {given.options.client for given in world.given} == {"kafka-python"}


@pytest.mark.parametrize(
    "words, reason",
    [
        (
            ("-w", "topics", "-n", "duplicate"),
            "duplicate is not for --client kafka-python: proxies would repeat requests, which TCP never does, and those of Kafka "
            "clients have no id to be recognized by; leave it out",
        ),
        (
            ("-w", "registers"),
            "registers is not played by --client kafka-python; it plays: groups, records, topics, reassignments",
        ),
        (
            ("-w", "topics", "--world", "shell"),
            "--client kafka-python is for real processes, not for --world shell; leave it out",
        ),
    ],
)
def test_another_client_is_refused_where_it_cannot_play(words, reason, tmp_path):
    code, _, error = invoke(tmp_path, "test", "--client", "kafka-python", *words)
    assert (code, error) == (64, f"Error: {reason}")


@pytest.mark.parametrize(
    "words, reason",
    [
        (
            ("-n", "kill,reorder,loss"),
            "loss, reorder are not for --secure: TLS hides single messages from the proxies between nodes; --net netns loses and "
            "doubles packets instead; leave them out",
        ),
        (
            ("-n", "duplicate"),
            "duplicate is not for --secure: TLS hides single messages from the proxies between nodes; --net netns loses and "
            "doubles packets instead; leave it out",
        ),
        (
            ("--world", "shell"),
            "--secure is for real processes, not for --world shell, which has no connections; leave it out",
        ),
    ],
)
def test_secure_links_are_refused_what_they_cannot_do(words, reason, tmp_path):
    code, _, error = invoke(tmp_path, "test", "-w", "topics", "--secure", *words)
    assert (code, error) == (64, f"Error: {reason}")


def test_traces_are_asked_for_and_asked_for_again(world, tmp_path):
    invoke(tmp_path, "test", "-w", "topics", "--trace")
    assert world.given[0].options.trace
    assert RunDirectory.find("latest", tmp_path).record().command.endswith("--trace")


@pytest.mark.parametrize(
    "name, reason", [("shell", "whose nodes write none"), ("simulated", "which always keeps one")], ids=["shell", "simulated"]
)
def test_traces_are_for_real_processes(name, reason, tmp_path):
    code, _, error = invoke(tmp_path, "test", "-w", "topics", "--trace", "--world", name)
    assert (code, error) == (64, f"Error: --trace is for real processes, not for --world {name}, {reason}; leave it out")


def test_a_matrix_on_secure_links_names_the_faults_that_it_leaves_out(tmp_path):
    _, told, _ = invoke(tmp_path, "test-all", "--matrix", "nightly", "--secure", "--within", "0")
    assert [line.split()[2] for line in told.splitlines() if "not for --secure" in line] == ["loss", "duplicate", "reorder"]


@pytest.mark.parametrize("name", test_all.MATRICES)
def test_matrices_name_what_there_is(name):
    cells = test_all.MATRICES[name]()
    assert {cell.workload for cell in cells} <= set(NAMES)
    assert {kind for cell in cells for kind in cell.nemeses} <= {*KINDS, ALL}
    assert len(cells) == len({(cell.workload, cell.nemeses) for cell in cells}) >= 4


def test_workers_are_a_number_or_so_many_per_node():
    assert [workers(text, 6) for text in ("10", "2n", "n")] == [10, 12, 6]


def test_a_trial_has_the_command_that_runs_it_again():
    trial = runs.Trial("topics", "real", ("kill",), Options(seed="a b", time_s=5, rate=0, concurrency=3, ops_per_key=40))
    assert trial.command == (
        "kraftlab chaos test -w topics --world real --seed 'a b' -n kill --time 5 --rate 0 --concurrency 3 "
        "--controllers 3 --brokers 3 --ops-per-key 40"
    )


def test_a_store_that_cannot_be_written_is_wrong_use(world, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, error = invoke(tmp_path / "file", "test", "-w", "registers", "--time", "1")
    assert code == 1
    assert error.startswith(f"Error: cannot keep runs in {tmp_path}/file: ")
    assert error.endswith("; choose another directory with --store")


def test_an_empty_store_names_the_command_that_makes_a_run(tmp_path):
    code, _, error = invoke(tmp_path, "check")
    assert code == 1
    assert error.startswith(f"Error: no run latest in {tmp_path}, or it was cut short; make one with: kraftlab chaos test")
    assert error.endswith(f"--store {tmp_path}")


def test_a_seed_is_whatever_is_written(world, tmp_path):
    """Not all of Unicode's digits can be counted with."""
    assert invoke(tmp_path, "test", "-w", "registers", "--seed", "²")[0] == 0
    assert [given.options.seed for given in world.given] == ["²"]
