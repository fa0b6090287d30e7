"""Fixtures for tests of users: their records, their faults, and the example of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from jepsen_lite.checkers.linearizable import Linearizable
from jepsen_lite.history import Op
from jepsen_lite.store import RunDirectory
from jepsen_lite.testing import Check, Nemesis, Story, Violated
from jepsen_lite.workloads.records import KeptRecords
from kraftlab.checking.models import Register
from kraftlab.lab import ClusterError, LocalCluster

pytestmark = pytest.mark.cluster

DOCS = Path(__file__).parents[2] / "docs" / "test-your-tool.md"


@pytest.fixture
def story() -> Story:
    return Story("a test")


@pytest.fixture
def recorder(story: Story, tmp_path: Path) -> Check:
    return Check(story, tmp_path / "runs")


def _raise(exception: BaseException) -> None:
    raise exception


def shown(op: Op) -> tuple[Any, ...]:
    return op.index, op.process, op.f, op.outcome, op.result, op.error


def test_a_call_is_recorded_with_what_came_of_it(recorder: Check) -> None:
    recorder.call("set", "x", 1, lambda value: value + 1, 1)
    recorder.call("set", "x", 2, _raise, ValueError("no\nmore"), refused=(ValueError,))
    recorder.call("set", "x", 3, _raise, KeyError("gone"), refused=(ValueError,), unknown=(LookupError,))
    recorder.call("get", "x", None, dict, a=1)
    assert [shown(op) for op in recorder.history] == [
        (0, 0, "set", "ok", 2, ""),
        (1, 0, "set", "fail", None, "ValueError: no"),
        (2, 0, "set", "info", None, "KeyError: 'gone'"),
        (3, 1, "get", "ok", {"a": 1}, ""),
    ]
    assert all(op.invoked_ns <= op.ended_ns for op in recorder.history)


@pytest.mark.parametrize("exception", [TypeError("a fault of the test"), KeyboardInterrupt()])
def test_unnamed_exceptions_are_raised_and_leave_the_call_unknown(recorder: Check, exception: BaseException) -> None:
    with pytest.raises(type(exception)):
        recorder.call("set", "x", 1, _raise, exception, unknown=(ValueError,), refused=(LookupError,))
    assert [op.outcome for op in recorder.history] == ["info"]
    assert recorder.history[0].error.startswith(type(exception).__name__)


def test_exceptions_of_nested_calls_are_raised(recorder: Check) -> None:
    with pytest.raises(TypeError, match="a fault of the test"):
        recorder.call("set", "x", 1, recorder.call, "set", "x", 2, _raise, TypeError("a fault of the test"))
    assert [op.outcome for op in recorder.history] == ["info", "info"]


def test_threads_are_processes_of_their_own_and_calls_under_way_may_have_had_their_effect(recorder: Check) -> None:
    begun, over = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        over.wait(10)

    thread = threading.Thread(target=recorder.call, args=("set", "x", 1, slow))
    thread.start()
    assert begun.wait(10)
    recorder.call("get", "x", None, lambda: 1)
    assert [(op.process, op.f, op.outcome) for op in recorder.history] == [(0, "set", "info"), (1, "get", "ok")]
    assert recorder(Linearizable(lambda key: Register()))[0].valid is True
    over.set()
    thread.join()
    assert [(op.index, op.process, op.outcome) for op in recorder.history] == [(0, 0, "ok"), (1, 1, "ok")]


def test_a_valid_history_gives_its_verdicts(recorder: Check) -> None:
    recorder.call("set", "x", 1, lambda: None)
    recorder.call("get", "x", None, lambda: 1)
    (verdict,) = recorder(Linearizable(lambda key: Register()))
    assert verdict.valid is True


def test_a_history_that_is_not_valid_fails_with_its_page(recorder: Check, tmp_path: Path) -> None:
    recorder.call("set", "x", 1, lambda: None)
    recorder.call("get", "x", None, lambda: 2)
    with pytest.raises(Violated, match="linearizable is not valid: key 'x': these operations cannot have happened") as error:
        recorder(Linearizable(lambda key: Register()))
    page = Path(re.search(r"see (.*)", str(error.value))[1])  # type: ignore[index]
    assert page.is_relative_to(tmp_path / "runs")
    assert "safety violated" in page.read_text()
    assert "<dt>concurrency</dt>" in page.read_text()
    assert "<dt>brokers</dt>" not in page.read_text(), "the check does not know the test's cluster"


def test_values_that_are_not_json_hide_no_verdict(recorder: Check) -> None:
    recorder.call("set", "x", 1, lambda: None)
    recorder.call("get", "x", None, lambda: 2j)
    with pytest.raises(Violated, match="see ") as caught:
        recorder(Linearizable(lambda key: Register()))
    assert "get x → 2j" in Path(str(caught.value).rpartition("see ")[2]).read_text()


def test_a_run_that_cannot_be_kept_hides_no_verdict(recorder: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.call("set", "x", "a name of a file: \ud800", lambda: None)
    recorder.call("get", "x", None, lambda: "another")
    with pytest.raises(Violated, match=r"linearizable is not valid: .*\nno run was kept: UnicodeEncodeError: "):
        recorder(Linearizable(lambda key: Register()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Violated, match=r"linearizable is not valid: .*\nno run was kept: .*pip install -e '\.\[chaos\]'"):
        recorder(Linearizable(lambda key: Register()))


def test_undecided_verdicts_fail_too(recorder: Check) -> None:
    with pytest.raises(Violated, match="linearizable is not decided: no operation has an outcome that can be judged"):
        recorder(Linearizable(lambda key: Register()))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([(0, "a"), (1, "b")], ""),
        ([(1, "b")], "a, acknowledged at 0 of clicks, is missing"),
        ([(0, "a"), (1, "b"), (2, "a")], "a is in clicks at 0 and at 2"),
        ([(0, "b"), (1, "a")], "a, acknowledged at 0 of clicks, is at 1"),
    ],
    ids=["kept", "lost", "twice", "moved"],
)
def test_records_of_any_client_are_judged(recorder: Check, found: list[tuple[int, str]], reason: str) -> None:
    for offset, value in enumerate("ab"):
        recorder.call("append", "clicks", value, lambda offset=offset: offset)
    recorder.call("append", "clicks", "c", _raise, OSError(), unknown=(OSError,))
    recorder.call("get", "clicks", None, lambda: found)
    with pytest.raises(Violated, match=reason) if reason else nullcontext():
        recorder(KeptRecords(compares_replicas=False))


def test_nothing_to_check_is_wrong_use(recorder: Check) -> None:
    with pytest.raises(TypeError, match="needs a checker"):
        recorder()


def test_faults_last_as_long_as_their_with_and_are_recorded(tmp_path: Path) -> None:
    story = Story("faults")
    with LocalCluster(tmp_path, controllers=3, brokers=0, allow_chaos=True) as cluster:
        nemesis = Nemesis(cluster, story)
        leader = _leader(nemesis)
        with nemesis.kill("leader") as done, nemesis.slow("controllers", delay_ms=1):
            assert done.nodes == (leader,)
            assert cluster.pid(_id(leader)) is None
        assert cluster.pid(_id(leader)) is not None
        with pytest.raises(RuntimeError), nemesis.isolate("controller-3000", one_way=True):
            assert _cut(cluster) == {(3000, 3001), (3000, 3002)}
            raise RuntimeError
        with pytest.raises(ClusterError, match="there is no node 'controller-9'"), nemesis.pause("controller-9"):
            raise AssertionError("nothing was paused")
        left = nemesis.partition("controller-3000", "controller-3001,controller-3002")
        left.__enter__()
        nemesis.close()
        assert _cut(cluster) == set()
    kill, slow, isolate = sorted(story.strikes, key=lambda strike: strike.begin_ns)
    assert (kill.kind, kill.nodes, slow.kind, len(slow.links)) == ("kill", (_id(leader),), "slow", 6)
    assert (isolate.kind, isolate.links) == ("isolate", ((3000, 3001), (3000, 3002)))
    assert all(strike.end_ns is not None and strike.begin_ns < strike.end_ns for strike in story.strikes)


def _leader(nemesis: Nemesis) -> str:
    """Return the name of the leader. On a busy machine an election can be in progress."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return nemesis.leader
        except ClusterError:
            if time.monotonic() > deadline:
                raise


def _cut(cluster: LocalCluster) -> set[tuple[int, int]]:
    return {(link.source, link.target) for link in cluster.links_status() if link.cut}


def _id(name: str) -> int:
    return int(name.rpartition("-")[2])


def test_the_plugin_costs_nothing_until_a_fixture_is_asked_for() -> None:
    script = (
        "import sys, pytest; old = set(sys.modules); import jepsen_lite.pytest_plugin; print(*sorted(set(sys.modules) - old))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["jepsen_lite", "jepsen_lite.pytest_plugin"]


ENDS = """
import os, signal

def test_a_node_is_killed_from_outside(kraftlab_cluster):
    os.kill(kraftlab_cluster.pid(3000), signal.SIGKILL)
    while not kraftlab_cluster.exited():
        pass
"""


@pytest.mark.nightly
def test_the_examples_of_the_docs_run_see_a_cache_and_a_node_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    kafka, example, container = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    cached = example.replace("    def get(", "    @functools.cache\n    def get(").replace("range(10)", "range(3)")
    (tmp_path / "test_0_kafka.py").write_text(kafka)
    (tmp_path / "test_1_example.py").write_text(example)
    (tmp_path / "test_2_cached.py").write_text("import functools\n" + cached.replace('"x"', '"y"'))
    (tmp_path / "test_3_ends.py").write_text(ENDS)
    (tmp_path / "test_4_container.py").write_text(container)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkraftlab_scope = session\nkraftlab_runs = runs\nfilterwarnings = ignore::DeprecationWarning\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--basetemp", str(tmp_path / "base"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert "1 failed, 4 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "linearizable is not valid: key 'y'" in done.stdout
    assert "nodes ended by themselves: controller-3000:" in done.stdout
    (record,) = (tmp_path / "runs" / "tests").glob("*/run.json")
    run = RunDirectory(record.parent).run()
    assert [strike.kind for strike in run.strikes] == ["kill", "isolate", "slow"]
    assert run.history.counts()["ok"] > 40
    assert (record.parent / "report" / "index.html").is_file()


SECURE = """
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from jepsen_lite.workloads.records import KeptRecords
from kraftlab.lab import ClusterError


@pytest.fixture(scope="session")
def kraftlab_secure():
    return True


def test_clients_log_in(kraftlab_cluster, nemesis, check):
    login = {"bootstrap_servers": kraftlab_cluster.kafka_bootstrap_servers, **kraftlab_cluster.kafka_python_options}
    with kraftlab_cluster.admin() as admin:
        admin.create_topic("clicks", partitions=1, replication_factor=2)
    with KafkaProducer(**login) as producer:
        for name, fault in (("kill", nemesis.kill("broker-0")), ("slow", nemesis.slow("broker-1", delay_ms=50))):
            with fault:
                check.call("append", "clicks", name, append, producer, name, unknown=(KafkaError,))
            kraftlab_cluster.wait_ready()
    check.call("get", "clicks", None, read, login)
    check(KeptRecords(compares_replicas=False))


def append(producer, value):
    return producer.send("clicks", value.encode(), partition=0).get(20).offset


def read(login):
    partition, records = TopicPartition("clicks", 0), []
    with KafkaConsumer(**login) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
            for batch in consumer.poll(1000).values():
                records += [(record.offset, record.value.decode()) for record in batch]
    return records


def test_a_client_without_a_login_gets_nothing(kraftlab_cluster):
    with pytest.raises(KafkaError):
        KafkaProducer(bootstrap_servers=kraftlab_cluster.kafka_bootstrap_servers, bootstrap_timeout_ms=1000)


def test_a_fault_that_tls_rules_out_is_refused(nemesis):
    with pytest.raises(ClusterError, match="TLS hides the messages"), nemesis.lossy("broker-1", loss=0.5):
        raise AssertionError("nothing was lost")
"""


@pytest.mark.nightly
def test_a_secure_cluster_of_the_fixture_is_for_clients_that_log_in(tmp_path: Path) -> None:
    """A user's test file overrides the fixture `kraftlab_secure`."""
    (tmp_path / "test_secure.py").write_text(SECURE)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkraftlab_scope = session\nkraftlab_controllers = 1\nfilterwarnings = ignore::DeprecationWarning\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--basetemp", str(tmp_path / "base"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
