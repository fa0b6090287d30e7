"""Recordings that cannot be played."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraftlab.demo.recording import DEFAULT_CAPTURE, Recording, RecordingError


def test_a_plan_that_names_a_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    recording = shutil.copytree(DEFAULT_CAPTURE, tmp_path / "capture")
    plan = recording / "plan-dirs.json"
    entry = '{"topic": "%s", "partition": %d, "replicas": [1, 2], "log_dirs": ["any", "/data/9/d0"]}'
    placed = Recording(recording).assignment[0]
    plan.write_text('{"version": 1, "partitions": [' + entry % (placed.topic, placed.partition) + "]}")
    with pytest.raises(RecordingError, match=r"plan-dirs\.json moves .* to /data/9/d0, which is not on one of its replicas"):
        Recording(recording)


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ("", "Partition reassignment list cannot be empty"),
        ('{"topic": "t", "partition": "0", "replicas": [1]}', r"Expected `int`, got `str` - at `\$\.partitions\[0\]\.partition`"),
        ('{"topic": "t", "partition": 0, "replicas": [1, 1]}', "t-0 contains multiple entries for 1"),
    ],
)
def test_a_plan_is_read_as_strictly_as_by_the_tool(tmp_path: Path, partitions: str, said: str) -> None:
    recording = shutil.copytree(DEFAULT_CAPTURE, tmp_path / "capture")
    (recording / "plan-dirs.json").write_text(f'{{"version": 1, "partitions": [{partitions}]}}')
    with pytest.raises(RecordingError, match=rf"plan-dirs\.json is not part of a recording: .*{said}"):
        Recording(recording)
