"""A recording of a Kafka cluster: the input of the demo.

Shape: `manifest.json` (per partition: replicas, leader and, per segment file, size, SHA-256 and counts), `assignment.json` (a
reassignment JSON that places every partition), `plan-dirs.json` (the plan to execute; `/data/B/dK` stands for log dir K of broker
B) and `segments/TOPIC-N/*.log`. Any recording of that shape works: other topics, long names, partitions without records.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from kraftlab.cli.reassign.plan import PlanError, parse_plan
from kraftlab.config.json_files import BadJson, decode_json

DEFAULT_CAPTURE = pathlib.Path(__file__).parents[1] / "examples" / "capture"
"""Six topics of an Apache Kafka cluster; part of the package."""

_DIRECTORY = re.compile(r"^/data/(\d+)/d(\d+)$")

T = TypeVar("T")


class RecordingError(ValueError):
    """The recording cannot be played. The text names the file and the fault."""


class SegmentFile(msgspec.Struct, frozen=True):
    """One segment file with the manifest's counts. Offsets are inclusive; absent in a file without batches."""

    file: str
    bytes: int
    sha256: str
    batches: int
    records: int
    control_records: int
    first_offset: int | None = None
    last_offset: int | None = None


class RecordedPartition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    log_bytes: int
    files: tuple[SegmentFile, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def batches(self) -> int:
        return sum(file.batches for file in self.files)

    @property
    def records(self) -> int:
        """Count all records, control records included."""
        return sum(file.records for file in self.files)

    @property
    def control_records(self) -> int:
        return sum(file.control_records for file in self.files)


class _Manifest(msgspec.Struct, frozen=True):
    partitions: tuple[RecordedPartition, ...]


class Recording:
    """A checked recording: every file exists with its size and digest, and every planned partition exists."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.partitions = _read(directory / "manifest.json", lambda data: decode_json(data, _Manifest)).partitions
        self.assignment = _read(directory / "assignment.json", parse_plan).partitions
        self.plan = _read(directory / "plan-dirs.json", parse_plan).partitions
        self._check()

    def files(self, partition: RecordedPartition) -> list[pathlib.Path]:
        """Return the partition's segment files in offset order."""
        folder = self.directory / "segments" / partition.name
        return [folder / file.file for file in sorted(partition.files, key=lambda file: file.file)]

    def brokers(self) -> list[int]:
        """Return every broker id in the assignment or the plan, sorted."""
        return sorted({broker for entry in (*self.assignment, *self.plan) for broker in entry.replicas})

    def log_dir_count(self) -> int:
        """Return the number of log dirs per broker for the plan (at least two: replicas will be moved between them)."""
        found = [_DIRECTORY.match(path) for entry in self.plan for path in entry.log_dirs]
        return max([2, *(int(match[2]) + 1 for match in found if match)])

    @property
    def total_bytes(self) -> int:
        return sum(partition.log_bytes for partition in self.partitions)

    @property
    def total_records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    def _check(self) -> None:
        recorded = {(partition.topic, partition.partition) for partition in self.partitions}
        placed = {(entry.topic, entry.partition) for entry in self.assignment}
        planned = {(entry.topic, entry.partition) for entry in self.plan}
        if unplaced := recorded - placed:
            raise RecordingError(f"{self.directory}/assignment.json does not place {_names(unplaced)}, which manifest.json lists")
        if unknown := planned - placed:
            raise RecordingError(f"{self.directory}/plan-dirs.json moves {_names(unknown)}, which assignment.json does not place")
        for entry in self.plan:
            for log_dir in entry.log_dirs:
                match = _DIRECTORY.match(log_dir)
                if match and int(match[1]) not in entry.replicas:
                    raise RecordingError(
                        f"{self.directory}/plan-dirs.json moves {entry.topic}-{entry.partition} to {log_dir}, "
                        "which is not on one of its replicas"
                    )
        for partition in self.partitions:
            for file, path in zip(sorted(partition.files, key=lambda file: file.file), self.files(partition), strict=True):
                _check_file(path, file)


def map_directory(path: str, directories: dict[tuple[int, int], str]) -> str:
    """Return the real path for `/data/B/dK`, given (broker, index) → path; return "any" and real paths unchanged."""
    match = _DIRECTORY.match(path)
    return directories[int(match[1]), int(match[2])] if match else path


def _names(partitions: set[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def _check_file(path: pathlib.Path, file: SegmentFile) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"cannot read {path}, which manifest.json lists: {error.strerror}") from error
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise RecordingError(f"{path} differs from the file in manifest.json ({file.bytes} bytes, sha256 {file.sha256[:12]}…)")


def _read(path: pathlib.Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}; --capture needs a folder like examples/capture") from error
    except (BadJson, PlanError) as error:
        raise RecordingError(f"{path} is not part of a recording: {error}") from error
