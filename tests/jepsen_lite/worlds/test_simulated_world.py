"""Workloads in the simulated world: every seed is a run that can be played again, and histories of clients show bugs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jepsen_lite.checkers.judgement import judge
from jepsen_lite.commands.trials import run_trial
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.generators import Invocation, Source, limit
from jepsen_lite.history import FAIL, INFO, OK
from jepsen_lite.runs import EVERY_RUN, Trial
from jepsen_lite.seeds import play_seeds
from jepsen_lite.store import TRANSCRIPT, RunDirectory
from jepsen_lite.verdicts import Verdict, combined
from jepsen_lite.workload import CallFailed, Completion, Options, Port, Workload
from jepsen_lite.workloads import WORKLOADS, workload_named
from jepsen_lite.worlds.simulated import SimulatedRun, play, run_simulated
from jepsen_lite.worlds.simulated_drive import SimulatedPort
from jepsen_lite.worlds.simulated_faults import NoSuchFault, draw_world
from jepsen_lite.worlds.world import Assignment
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.mutant import planted
from kraftlab.cli import main
from kraftlab.cli.output import Output
from kraftlab.common.exit_codes import USAGE
from kraftlab.console.messages import from_trace
from kraftlab.simulation.clients.world import ClientWorld
from kraftlab.simulation.consensus.fault_atlas import sets_in_force
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.observed import Rot
from kraftlab.simulation.consensus.options import draw_options
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.metadata.mutants import MUTANTS

QUICK = Options(time_s=3, timeout_ms=1_000, rate=150)
SIMULATED = [name for name in WORKLOADS if "simulated" not in workload_named(name).not_in]


def bad(played: SimulatedRun) -> list[Verdict]:
    verdicts = (*played.verdicts, *judge(played.run, EVERY_RUN))
    return [verdict for verdict in verdicts if verdict.valid is False]


def invoking(invoke: Any, operations: int = 1) -> Workload:
    """Return a workload with `operations` operations that all call `invoke`."""

    class Client:
        async def invoke(self, invocation: Any, port: Port) -> Completion:
            return await invoke(port)

    def generator(options: Options) -> Source:
        return limit(operations, lambda context: Invocation("ask"))

    return Workload("asking", lambda options, process: Client(), generator, None, lambda options: ())


def test_in_the_end_all_controllers_are_voters_also_those_that_began_as_observers():
    """Observers register, so clients know their endpoints."""
    options = msgspec.structs.replace(QUICK, seed="6", controllers=workload_named("voters").controllers, timeout_ms=5_000)
    world = draw_world(options, ("all",))
    assert world.observers
    run = run_simulated(workload_named("voters"), "6", options).run
    assert [op.result for op in run.history.of("restore") if op.outcome == OK] == [list(range(world.voters + world.observers))]


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.nightly)], ids=["few", "many"])
@pytest.mark.parametrize("name", SIMULATED)
def test_a_workload_runs_while_faults_strike_and_nothing_is_wrong(name: str, seeds: range):
    answered = 0
    for seed in seeds:
        played = run_simulated(workload_named(name), seed, QUICK, with_tail=True)
        assert not bad(played), f"seed {seed}: {bad(played)}\n" + "\n".join(played.tail)
        answered += played.run.history.counts()[OK]
    assert answered > 10 * len(seeds), "the workload hardly got anything done"


def test_on_a_calm_cluster_everything_is_answered():
    played = run_simulated(workload_named("registers"), 1, QUICK, nemeses=())
    assert combined(played.verdicts) is True
    assert played.run.history.counts()[INFO] == 0
    assert played.run.history.counts()[OK] > 150
    assert not played.run.strikes
    assert played.run.log is not None
    assert {"LeaderChange", "Topic", "RequestOutcome"} <= {entry.kind for entry in played.run.log.entries}


SHOW = """
from jepsen_lite.worlds.simulated import run_simulated
from jepsen_lite.workloads import workload_named
from jepsen_lite.workload import Options
played = run_simulated(workload_named("topics"), 7, Options(time_s=3, timeout_ms=1_000, rate=150))
print(played.trace_hash, played.history_hash, played.simulated_ms)
"""


def test_a_seed_is_the_same_run_in_every_process_however_it_hashes():
    around = os.environ | {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=around, capture_output=True, text=True, check=True).stdout
    played = run_simulated(workload_named("topics"), 7, QUICK)
    assert shown == f"{played.trace_hash} {played.history_hash} {played.simulated_ms}\n"


def test_a_plan_plays_the_same_run_and_a_part_of_it_another():
    first = run_simulated(workload_named("registers"), 3, QUICK)
    assert first.plan.actions
    again = run_simulated(workload_named("registers"), 3, QUICK, first.plan)
    assert (again.trace_hash, again.history_hash) == (first.trace_hash, first.history_hash)
    assert (again.run.log, again.run.strikes) == (first.run.log, first.run.strikes)
    without = msgspec.structs.replace(first.plan, actions=())
    assert run_simulated(workload_named("registers"), 3, QUICK, without).trace_hash != first.trace_hash


def test_seeds_are_played_in_their_order_and_their_results_travel_between_processes():
    trials = [Trial("producer-ids", "simulated", ("all",), Options(seed=str(seed), time_s=1, rate=50)) for seed in range(3)]
    played = list(play_seeds(trials))
    assert [seed.trial for seed in played] == trials
    assert pickle.loads(pickle.dumps(played)) == played


def test_named_nemeses_are_carried_out_and_recorded():
    options = msgspec.structs.replace(QUICK, time_s=6)
    played = run_simulated(workload_named("registers"), 1, options, nemeses=("kill", "pause"))
    kinds = {strike.kind for strike in played.run.strikes}
    assert kinds <= {"kill", "graceful-restart", "crash-between-effects", "pause", "take-snapshot", "down"}
    assert kinds & {"kill", "pause"}
    assert all(strike.end_ns is not None and strike.end_ns >= strike.begin_ns for strike in played.run.strikes)
    down = {observation.at_ns for observation in played.run.observations if not observation.is_up}
    assert down, "no killed node was seen down"
    assert played.run.healed_ns < played.run.ended_ns


def test_unknown_nemeses_and_faults_are_named():
    with pytest.raises(NoSuchFault, match="unknown nemesis earthquake in the simulated world; known: kill, pause"):
        run_simulated(workload_named("registers"), 1, QUICK, nemeses=("earthquake",))
    with pytest.raises(NoSuchFault, match="unknown fault earthquake in the simulated world; known: kill"):
        run_simulated(workload_named("registers"), 1, QUICK, FaultPlan(seed="1", actions=(Action(at_ms=1, kind="earthquake"),)))


def test_client_histories_alone_show_a_planted_bug():
    """Only the checkers of the history judge."""
    with planted(MUTANTS["answer-before-commit"]):
        played = run_simulated(workload_named("registers"), 0, QUICK, is_judged=False)
    assert {"witness", "linearizable"} <= {verdict.checker for verdict in bad(played)}
    assert not played.violation


def test_the_rules_of_the_world_end_the_run_of_a_planted_bug_and_its_last_steps_are_kept(tmp_path: Any):
    class Silent:
        def ended(self, op: object) -> None: ...

        def report(self, status: object) -> None: ...

    options = msgspec.structs.replace(QUICK, seed="0")
    directory = RunDirectory.new(tmp_path, "registers", "0")
    with planted(MUTANTS["answer-before-commit"]):
        played = play(Assignment(workload_named("registers"), options, ("all",), None, directory, Silent()))
    assert played.run.violations[0].startswith("M3 ")
    assert "n0" in directory.path.joinpath(TRANSCRIPT).read_text()


def test_a_kept_trace_does_not_change_the_run():
    lines: list[str] = []
    watched = run_simulated(workload_named("registers"), 5, QUICK, trace=lines.append)
    alone = run_simulated(workload_named("registers"), 5, QUICK)
    assert (watched.trace_hash, watched.history_hash) == (alone.trace_hash, alone.history_hash)
    events = from_trace(line.encode() for line in lines)
    assert {each.kind for each in events} >= {"boot", "state", "sent", "commit"}
    arrived = [each for each in events if each.kind == "sent" and each.arrived_us is not None]
    assert len(arrived) > 100
    assert all(each.arrived_us > each.at_us for each in arrived)
    elected = {(each.node, each.epoch) for each in events if each.state == "leader" and each.kind == "state"}
    seen = {(each.node, each.epoch) for each in watched.run.observations if each.is_up and each.leader == each.node}
    assert elected >= seen
    assert seen


def test_clocks_that_run_wrong_are_seen_where_time_is_known():
    plan = FaultPlan(seed="5", actions=(Action(at_ms=400, kind="clock-jump", for_ms=0),))
    played = run_simulated(workload_named("registers"), 5, QUICK, plan)
    ahead = {seen.clock_ahead_ms for seen in played.run.observations if seen.is_up}
    assert None not in ahead
    assert max(ahead) - min(ahead) > 0


def test_a_broker_passes_a_call_on_and_a_standby_does_not_carry_it_out():
    seen: dict[str, Any] = {}

    async def invoke(port: Port) -> Completion:
        request = pb.AllocateProducerIdsRequest(broker_id=-1)
        reply = await port.call("DescribeCluster", pb.DescribeClusterRequest(), node=port.brokers[0])
        seen["leader"] = reply.response.header.leader_id
        for node in port.controllers:
            try:
                await port.call("AllocateProducerIds", request, node=node)
            except Exception as error:
                seen[f"{node}"] = error
        return Completion(OK)

    run_simulated(invoking(invoke), 1, msgspec.structs.replace(QUICK, concurrency=1), nemeses=())
    leader = seen.pop("leader")
    assert leader >= 0
    refusals = {node: (error.outcome, error.error) for node, error in seen.items() if node != str(leader)}
    assert set(refusals.values()) == {(FAIL, "NOT_CONTROLLER")}
    assert len(refusals) >= 2


def test_a_call_of_a_dead_node_fails_and_of_a_paused_node_is_unknown():
    errors: list[tuple[str, str]] = []

    async def invoke(port: Port) -> Completion:
        try:
            await port.call("DescribeCluster", pb.DescribeClusterRequest(), node=0)
        except CallFailed as failed:
            errors.append((failed.outcome, failed.error))
        await port.sleep(0.02)
        return Completion(OK)

    options = msgspec.structs.replace(QUICK, concurrency=1, timeout_ms=40, rate=0)
    for seed in range(4):
        run_simulated(invoking(invoke, 200), seed, options, nemeses=("kill", "pause"))
    assert (FAIL, "UNAVAILABLE") in errors
    assert (INFO, "DEADLINE_EXCEEDED") in errors


def test_no_change_is_too_large_for_a_log_that_takes_little_at_a_time():
    async def invoke(port: Port) -> Completion:
        request = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="large", num_partitions=100, replication_factor=1)])
        reply = await port.call("CreateTopics", request, node=port.brokers[0])
        return Completion(OK, reply.response.topics[0].error_code)

    seed = next(seed for seed in range(100) if draw_options(str(seed), FAULTS).tuning.uncommitted_bytes_max < 5_000)
    played = run_simulated(invoking(invoke), seed, msgspec.structs.replace(QUICK, concurrency=1), nemeses=())
    assert [(op.outcome, op.result) for op in played.run.history] == [(OK, 0)]
    assert not played.violation


def test_the_command_plays_seeds_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main.run(
            [
                *("chaos", "test", "-w", "registers", "-n", "kill", "--world", "simulated", "--seed", "5", "--time", "1"),
                *("--test-count", "2", "--store", str(tmp_path), "--json"),
            ]
        )
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert [path.rpartition("-")[2] for path in document["runs"]] == ["5", "6"]
    assert document["valid"] is True


def test_a_run_and_its_result_travel_between_processes(tmp_path: Path):
    """Needed by --jobs; test_shell_world.py tests runs at the same time."""
    trial = Trial("registers", "simulated", ("kill",), Options(seed="5", time_s=0.5, rate=50))
    run = pickle.loads(pickle.dumps(partial(run_trial, store=str(tmp_path), output=Output(False), is_shown=False)))
    tried = pickle.loads(pickle.dumps(run(trial)))
    assert tried.directory.record() == tried.record


def test_the_command_keeps_nothing_of_many_seeds_in_which_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert many_seeds(tmp_path) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["seeds"], document["runs"], document["not_valid"]) == (True, 2, [], [])
    assert document["simulated_s"] > 2
    assert not [*tmp_path.iterdir()]


def test_the_command_plays_seeds_again_that_are_not_valid_and_keeps_those_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with planted(MUTANTS["answer-before-commit"]):
        assert many_seeds(tmp_path) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["not_valid"]) == (False, ["5", "6"])
    assert [RunDirectory.find(run).record().valid for run in document["runs"]] == [False, False]


def many_seeds(store: Path) -> object:
    """Run two seeds; return the exit code."""
    seeds = ("-w", "registers", "--world", "simulated", "--seed", "5", "--seeds", "2", "--time", "1", "--rate", "50")
    with pytest.raises(SystemExit) as ended:
        main.run(["chaos", "test", *seeds, "--store", str(store), "--json", "--jobs", "1"])
    return ended.value.code


def test_runs_on_processes_are_played_one_at_a_time(capsys: pytest.CaptureFixture[str]):
    assert main.run(["chaos", "test", "-w", "registers", "--jobs", "2"]) == USAGE
    assert "--jobs is for --world simulated and --world shell" in capsys.readouterr().err


def test_removing_a_voter_needed_beside_a_corrupt_disk_is_refused_before_sending():
    options = Options(seed="1", time_s=2, rate=20)
    world = ClientWorld(draw_world(options, ["membership"]), Transcript(), 1, {}, is_judged=True)
    first, second, _ = sorted(voter.key.node_id for voter in sets_in_force(world)[0].voters)
    world.machines[second].rot = Rot("a segment", 3, range(3), False)
    with pytest.raises(CallFailed, match=f"not sent: without node {first}, no majority") as refused:
        SimulatedPort(world, options, 0).call("RemoveRaftVoter", pb.RemoveRaftVoterRequest(voter_id=first)).send(None)
    assert refused.value.outcome == "fail"
