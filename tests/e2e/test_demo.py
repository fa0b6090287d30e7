"""The demo as a person or a script runs it: on recordings of other shapes, and interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kraftlab.broker.log.record_batch import Record, build_batch, iterate
from kraftlab.demo.lab import wait_until

LONGEST_NAME = "n" * (255 - len("-0.") - 32 - len("-future"))
"""The longest whose replicas can be moved between log directories."""
Processes = Callable[[pathlib.Path], dict[int, str]]


@contextmanager
def demo(directory: pathlib.Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with a temporary directory of its own, so that what it leaves can be seen.

    It heeds Ctrl-C also where the tests run in the background of a shell, whose children ignore it.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "kraftlab.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(directory)},
    )
    signal.signal(signal.SIGINT, inherited)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)


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
    """Batches `first` to `last` of ten records each; what the manifest says of the file."""
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


def test_it_plays_another_recording_and_prints_one_json_report(scratch: pathlib.Path, processes: Processes) -> None:
    recording, work = scratch / "recording", scratch / "work"
    recording.mkdir()
    work.mkdir()
    with demo(work, "--json", "--capture", str(record(recording))) as process:
        said, complained = process.communicate(timeout=80)
    report = json.loads(said)
    failed = [check for check in report["checks"] if not check["ok"]]
    assert not failed, failed
    assert report["ok"] is True
    assert process.returncode == 0
    assert {"ready", "failover", "total"} <= set(report["seconds"])
    assert complained == ""
    assert not processes(work)
    assert not list(work.iterdir())


def test_ctrl_c_in_the_middle_leaves_no_process_and_no_directory(scratch: pathlib.Path, processes: Processes) -> None:
    with demo(scratch, "--json") as process:
        wait_until("the cluster runs", lambda: len(processes(scratch)) >= 8)
        wait_until("topics are imported", lambda: any(scratch.glob("*/broker-*/d*/*-0")))
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    report = json.loads(said)
    assert report["ok"] is False
    assert report["checks"][-1] == {"name": "ran to its end", "ok": False, "detail": "interrupted"}
    assert process.returncode == 130
    assert not processes(scratch)
    assert not list(scratch.iterdir())


def test_a_recording_that_was_damaged_is_refused_before_anything_starts(scratch: pathlib.Path, tmp_path: pathlib.Path) -> None:
    recording = record(tmp_path)
    (path,) = (recording / "segments" / "dots.and_--0").glob("*10.log")
    path.write_bytes(path.read_bytes()[:-1])
    with demo(scratch, "--capture", str(recording)) as process:
        _, complained = process.communicate(timeout=30)
    assert process.returncode == 1
    assert str(path) in complained
    assert not list(scratch.iterdir())
