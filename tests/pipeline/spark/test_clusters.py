"""The same commands elsewhere than on this machine alone: under spark-submit, on a master and a worker that the package holds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.session import factory, java
from kraftlab.pipeline.session.settings import SHARED_FILES

DEADLINE_S = 500
TABLES = ("bronze.batches", "bronze.quarantine", "bronze.offset_gaps")
SCRIPT = """import sys
from kraftlab.cli.main import run

sys.exit(run(["pipeline", *sys.argv[1:]]))
"""


def quick(environ: dict[str, str]) -> str:
    """Options for JVMs that live for seconds: the quick compiler, and the archive of classes if this user has one."""
    return factory.java_options(java.find(environ), "-XX:TieredStopAtLevel=1")


def environment() -> dict[str, str]:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environ = dict(os.environ) | python
    java.ensure(environ)
    return environ | {"SPARK_DAEMON_JAVA_OPTS": quick(environ), "SPARK_DAEMON_MEMORY": "256m"}


def elsewhere(before: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own. spark-submit writes all its output to stdout."""
    command = [*before, *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(true: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert process.poll() is None, f"{what}: it ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.05)


def daemon(*arguments: str) -> subprocess.Popen[bytes]:
    """A part of a standalone cluster, as the package holds it."""
    command = [factory.spark_home() / "bin" / "spark-class", *arguments]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and a worker, on loopback; the master's URL."""
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"

    def workers() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
                found: int = msgspec.json.decode(answer.read())["aliveworkers"]
                return found
        except (OSError, msgspec.DecodeError):
            return -1

    address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
    place = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "2g", "--work-dir", str(tmp_path / "work")]
    started = [daemon("org.apache.spark.deploy.master.Master", *address)]
    try:
        wait_until(lambda: workers() == 0, "the master", started[0])
        started.append(daemon("org.apache.spark.deploy.worker.Worker", *place, url))
        wait_until(lambda: workers() == 1, "the worker", started[1])
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(DEADLINE_S)


def contents(lake: Path) -> dict[str, list[dict[str, object]]]:
    """Every row of every table, in the order of its text."""

    def rows(table: pa.Table) -> list[dict[str, object]]:
        return sorted(table.to_pylist(), key=repr)

    return {table: rows(Lake(str(lake)).arrow(table)) for table in TABLES}


@pytest.mark.nightly
@pytest.mark.usefixtures("spark")
def test_spark_submit_on_a_master_and_a_worker_leaves_what_one_process_leaves_and_unshared_disks_are_refused(
    standalone: str, recording: Callable[[str], Path], tmp_path: Path
) -> None:
    log, here, there = str(recording("00000000000000000000.log")), tmp_path / "here", tmp_path / "there"
    assert run(["pipeline", "ingest", log, "--lake", str(here)]) == 0
    script = tmp_path / "line.py"
    script.write_text(SCRIPT)
    submit = [str(factory.spark_home() / "bin" / "spark-submit"), "--master", standalone, "--conf", f"{SHARED_FILES}=true"]
    submit += ["--executor-memory", "512m"]
    submit += ["--driver-java-options", quick(dict(os.environ)), str(script)]
    ingested = elsewhere(submit, "ingest", log, "--lake", str(there))
    assert ingested.returncode == 0, ingested.stdout
    assert contents(there) == contents(here)
    refused = elsewhere([sys.executable, str(script)], "--master", standalone, "build", "silver", "--lake", str(there))
    assert refused.returncode == 64, refused.stderr
    assert f"is on this machine's disk, which workers of {standalone} do not share" in refused.stderr
