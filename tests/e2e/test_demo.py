"""`kraftlab demo` on recordings of other shapes; test_package plays its own."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from kraftlab.records.record_batch import Record, build_batch, iterate

pytestmark = pytest.mark.cluster

LONGEST_NAME = "n" * (255 - len("-0.") - 32 - len("-future"))
"""The longest name of a topic whose replicas can move between log directories."""
Kraftlab = Callable[..., tuple[int, str]]
Processes = Callable[[pathlib.Path], dict[int, str]]


def record(directory: pathlib.Path) -> pathlib.Path:
    """A recording with one topic of the longest name, one of few records, and one that is empty; in two segments each."""
    partitions = {
        (LONGEST_NAME, 0): ([0, 1], 30),
        (LONGEST_NAME, 1): ([2, 3], 40),
        ("dots.and_-", 0): ([1], 3),
        ("empty", 0): ([3, 0], 0),
    }
    manifest = []
    for (topic, number), (replicas, batches) in partitions.items():
        files = []
        for first in (0, batches // 2):
            last = batches // 2 if first == 0 else batches
            if first < last or batches == 0:
                files.append(write_segment(directory / "segments" / f"{topic}-{number}", first, last))
            if batches == 0:
                break
        size_bytes = sum(file["bytes"] for file in files)
        manifest.append(
            {
                "topic": topic,
                "partition": number,
                "replicas": replicas,
                "leader": replicas[0],
                "log_bytes": size_bytes,
                "files": files,
            }
        )
    (directory / "manifest.json").write_text(json.dumps({"partitions": manifest}))
    placed = [
        {"topic": topic, "partition": number, "replicas": replicas} for (topic, number), (replicas, _) in partitions.items()
    ]
    (directory / "assignment.json").write_text(json.dumps({"version": 1, "partitions": placed}))
    plan = [
        {"topic": LONGEST_NAME, "partition": 0, "replicas": [2, 1], "log_dirs": ["/data/2/d1", "any"]},
        {"topic": "empty", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data/2/d0"]},
    ]
    (directory / "plan-dirs.json").write_text(json.dumps({"version": 1, "partitions": plan}))
    return directory


def write_segment(directory: pathlib.Path, first: int, last: int) -> dict[str, object]:
    """Write batches `first` to `last` of ten records each, and return the file's entry in the manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{first * 10:020d}.log"
    data = b"".join(
        build_batch([Record(b"k%d" % n, b"%d" % number * 100, 1_700_000_000_000 + n) for n in range(10)], base_offset=number * 10)
        for number in range(first, last)
    )
    path.write_bytes(data)
    headers = [header for _, header in iterate(data)]
    counted: dict[str, object] = {
        "file": path.name,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "batches": len(headers),
        "records": sum(header.record_count for header in headers),
        "control_records": 0,
    }
    if headers:
        counted |= {"first_offset": headers[0].base_offset, "last_offset": headers[-1].last_offset}
    return counted


@pytest.mark.parametrize("options", [(), pytest.param(("--secure",), marks=pytest.mark.nightly)], ids=" ".join)
def test_it_plays_another_recording_and_prints_one_json_report(
    options: tuple[str, ...],
    scratch: pathlib.Path,
    processes: Processes,
    kraftlab_here: Kraftlab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checks are the same on a secure cluster, which also refuses strangers."""
    recording, work = scratch / "recording", scratch / "work"
    recording.mkdir()
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(work))
    code, said = kraftlab_here("demo", "--json", *options, "--capture", str(record(recording)))
    report = json.loads(said)
    failed = [check for check in report["checks"] if not check["ok"]]
    assert not failed, failed
    assert report["ok"] is True
    names = [check["name"] for check in report["checks"]]
    assert ("strangers refused" in names) is ("--secure" in options)
    assert {"failover", "throttle", "kafka-python", "bytes equal", "same metadata everywhere"} <= set(names)
    assert code == 0
    assert {"ready", "failover", "total"} <= set(report["seconds"])
    assert not processes(work)
    assert not list(work.iterdir())


@pytest.mark.nightly
def test_ctrl_c_leaves_nothing_of_a_secure_cluster(scratch: pathlib.Path, processes: Processes) -> None:
    """Strangers have been refused by then."""
    command = [sys.executable, "-m", "kraftlab.cli.main", "demo", "--secure"]
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # children in the background of a shell ignore it
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    signal.signal(signal.SIGINT, inherited)
    assert process.stdout is not None
    lines = iter(process.stdout)
    seen = next((line for line in lines if "strangers refused" in line), "")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert "✓ strangers refused" in seen, said
    assert "ran to its end: interrupted" in said
    assert process.returncode == 130
    assert not processes(scratch)
    assert not list(scratch.iterdir())


def test_a_recording_that_was_damaged_is_refused_before_anything_starts(
    tmp_path: pathlib.Path, kraftlab_here: Kraftlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlab.lab.LocalCluster", None)
    recording = record(tmp_path)
    (path,) = (recording / "segments" / "dots.and_--0").glob("*10.log")
    path.write_bytes(path.read_bytes()[:-1])
    code, said = kraftlab_here("demo", "--capture", str(recording))
    assert code == 1
    assert str(path) in said
