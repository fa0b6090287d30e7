"""`kraftlab chaos test` on processes of this machine, as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jepsen_lite.faults.networks.back_ends import NETNS
from jepsen_lite.store import RunDirectory
from kraftlab.lab import namespaces
from kraftlab.quorum.spec import reading, tlc, traces

pytestmark = pytest.mark.cluster

COMMAND = (sys.executable, "-m", "kraftlab.cli.main", "chaos", "test")


def words_of(tmp_path, *words, workload="registers"):
    return (*COMMAND, "-w", workload, "--store", str(tmp_path / "runs"), "--json", *words)


def surroundings(tmp_path):
    """Return the environment of the command. Processes that it starts inherit the environment and are found by it."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def started(tmp_path) -> list[Path]:
    """Return the running processes that were started here, as directories of /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if str(tmp_path / "state").encode() in (entry / "environ").read_bytes():
                    found.append(entry)
    return found


def left_behind(tmp_path) -> list[str]:
    """Return processes that still run, and ledger entries that still exist."""
    words = [(entry / "cmdline").read_bytes().decode(errors="replace") for entry in started(tmp_path)]
    return words + [str(path) for path in tmp_path.glob("state/**/*.json")]


def kept(tmp_path, kinds, *words, workload="registers"):
    """Run the command with these faults and return its output and its stored run. Every fault must have been injected and undone,
    and no checker may fail. On a slow machine an operation can fail every time, which `stats` reports.
    """
    arguments = words_of(tmp_path, "-n", kinds, *words, workload=workload)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False, env=surroundings(tmp_path))
    found = json.loads(done.stdout.splitlines()[-1])
    directory = RunDirectory.find(found["run"])
    run, record = directory.run(), directory.record()
    doubts = {verdict.checker: verdict.reason for verdict in record.verdicts if verdict.valid is not True}
    assert doubts.keys() <= {"stats"}
    assert done.returncode == (2 if doubts else 0), done.stdout + done.stderr
    assert found["valid"] == ("unknown" if doubts else True) and found["lost"] == 0 and found["ops"]["ok"] > 0
    assert {strike.kind for strike in run.strikes if not strike.error} == set(kinds.split(","))
    assert all(strike.end_ns is not None for strike in run.strikes)
    assert left_behind(tmp_path) == []
    return directory, run, record


def test_a_cluster_that_is_killed_paused_and_split_keeps_its_promises(tmp_path):
    words = ("--time", "7", "--rate", "100", "--concurrency", "8", "--seed", "11")
    directory, run, record = kept(tmp_path, "kill,pause,partition", *words)
    assert {observation.node for observation in run.observations} == {0, 1, 2, 3000, 3001, 3002}
    assert any(not observation.is_up for observation in run.observations)
    assert run.log is not None and run.log.start == 0 and run.log.end == record.log_end > 0
    written = {entry.request_id for entry in run.log.entries}
    assert all(op.request_id in written for op in run.history if op.f == "set" and op.outcome == "ok")
    assert {path.name for path in directory.nodes.iterdir()} >= {"controller-3000.log", "broker-0.log"}
    assert (directory.report / "index.html").is_file()
    assert {verdict.checker for verdict in record.verdicts} >= {
        "witness",
        "linearizable",
        "log-agreement",
        "node-crashes",
        "course",
    }


@pytest.mark.nightly
def test_a_group_of_kafka_python_skips_nothing_and_loses_no_commit_while_nodes_are_killed(tmp_path):
    words = ("--time", "2", "--rate", "60", "--concurrency", "6", "--controllers", "1", "--brokers", "2", "--seed", "24")
    _, run, record = kept(tmp_path, "kill", *words, workload="groups")
    assert run.options.client == "kafka-python"
    assert "--client kafka-python" in record.command
    assert sum(op.f == "append" and op.outcome == "ok" for op in run.history) > 20
    assert [verdict.valid for verdict in record.verdicts if verdict.checker == "group-progress"] == [True]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "client, workload, checker", [("kraftlab", "registers", "linearizable"), ("kafka-python", "records", "kept-records")]
)
def test_a_secure_cluster_keeps_its_promises_to_clients_that_log_in(tmp_path, client, workload, checker):
    words = ("--time", "2", "--rate", "60", "--concurrency", "4", "--controllers", "1", "--brokers", "2", "--seed", "24")
    _, run, record = kept(tmp_path, "kill,slow", "--secure", "--client", client, *words, workload=workload)
    assert run.options.secure and record.command.endswith("--secure")
    assert run.log is not None and run.log.start == 0 and run.log.end == record.log_end > 0
    assert [verdict.valid for verdict in record.verdicts if verdict.checker == checker] == [True]


SMALL = ("--brokers", "1", "--concurrency", "4", "--rate", "50")


@pytest.mark.nightly
def test_the_specification_explains_the_traces_of_a_run_with_kills(tmp_path):
    try:
        tlc.jar()
    except tlc.TlcMissing as error:
        pytest.skip(str(error))
    directory, _, _ = kept(tmp_path, "kill", "--trace", "--time", "6", *SMALL, "--rate", "20", "--seed", "8")
    lines = reading.read([directory.path])
    assert {line["node"] for line in lines} == {0, 3000, 3001, 3002}
    assert sum(line["event"] == "boot" for line in lines) > 4
    (verdict,) = traces.check([lines])
    assert verdict.accepted, verdict


def test_ctrl_c_stops_the_cluster_and_keeps_the_run_as_far_as_it_came(tmp_path):
    words = words_of(tmp_path, *SMALL, "--controllers", "1", "--time", "600", "-n", "partition")
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings(tmp_path))
    assert running.stderr is not None and running.stdout is not None
    lines = []
    for line in running.stderr:
        lines.append(line)
        if "clients" in line and "ok 0" not in line:
            os.kill(running.pid, signal.SIGINT)
            break
    out, rest = running.communicate(timeout=90)
    found = json.loads(out.splitlines()[-1])
    assert (running.returncode, found["valid"]) == (2, "unknown"), "".join(lines) + rest
    assert found["ops"]["ok"] > 0
    run = RunDirectory.find(found["run"]).run()
    assert run.cut_short == "SIGINT in the phase 'clients'"
    assert run.log is not None and run.log.end > 0
    assert sum(found["ops"].values()) == len(run.history)
    assert left_behind(tmp_path) == []


PACKETS = "partition,isolate-leader,one-way,late,slow,loss,duplicate,reorder"


@pytest.mark.nightly
def test_a_cluster_in_a_network_of_its_own_keeps_its_promises_while_packets_are_lost(tmp_path, netns):
    directory, _, record = kept(tmp_path, PACKETS, *SMALL, "--net", netns, "--time", "6", "--seed", "4")
    assert record.links == netns
    assert "quorum on 198.18.0.1:" in (directory.nodes / "controller-3000.log").read_text()


@pytest.mark.nightly
def test_no_network_is_left_after_a_kill_of_the_harness_and_a_cleaning(tmp_path, netns):
    words, around = words_of(tmp_path, *SMALL, "--net", netns, "-n", "partition", "--time", "600"), surroundings(tmp_path)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=around) as running:
        assert running.stderr is not None
        try:
            assert any("clients" in line and "ok 0" not in line for line in running.stderr)
            entries = started(tmp_path)
            own = {os.readlink(entry / "ns" / "net") for entry in entries}
            (holder,) = (entry for entry in entries if b"jepsen_lite.faults.networks" in (entry / "cmdline").read_bytes())
            os.kill(int(holder.name), signal.SIGSTOP)
        finally:
            running.kill()
    assert len(own) == 6 and os.readlink(namespaces.OWN) not in own, "of four nodes, the harness and the switch"
    cleaned = subprocess.run([*COMMAND[:-1], "clean"], capture_output=True, text=True, timeout=60, check=True, env=around)
    assert f"process {holder.name} (network): gone" in cleaned.stdout
    deadline = time.monotonic() + 30
    while started(tmp_path):
        assert time.monotonic() < deadline, left_behind(tmp_path)
        time.sleep(0.05)
    assert left_behind(tmp_path) == []


def unprivileged() -> tuple[str, ...]:
    """Return the prefix of a command that must not have root's privileges; empty for other users."""
    return ("setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all", "--") if os.geteuid() == 0 else ()


@pytest.mark.nightly
def test_users_other_than_root_have_networks_with_user_namespaces(tmp_path):
    around = surroundings(tmp_path)
    doctor = (*unprivileged(), *COMMAND[:-1], "doctor", "--json")
    document = json.loads(subprocess.run(doctor, capture_output=True, text=True, timeout=60, check=True, env=around).stdout)
    off = {row["name"]: row["detail"] for row in document["capabilities"] if not row["is_on"]}
    if NETNS in off:
        pytest.skip(off[NETNS])
    assert "power" in off
    words = words_of(tmp_path, *SMALL, "--net", NETNS, "-n", "partition,kill", "--time", "4", "--seed", "4")
    done = subprocess.run([*unprivileged(), *words], capture_output=True, text=True, timeout=150, check=False, env=around)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ops"]["ok"] > 0 and found["valid"] is not False, done.stderr
    assert RunDirectory.find(found["run"]).record().links == NETNS
    assert left_behind(tmp_path) == []
