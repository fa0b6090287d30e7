"""Every number in the files of a log replaced by its ends, and by one more than the bytes that are left: the log opens, or says
what is damaged. It is then read, searched, written, truncated and closed.

The numbers that no CRC covers are replaced alone, the others also with the CRC that fits.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import pytest

from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.time_lookup import find_offset
from kraftlab.records.codecs import compress
from kraftlab.records.errors import LogError
from kraftlab.records.record_batch import HEADER_BYTES, Record, build_batch, encode_batch, iterate, read_header

from .conftest import DIRECTORY_ID, TOPIC_ID, batch

pytestmark = pytest.mark.usefixtures("little_memory")

BATCH = {
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "record_count": (57, "i"),
}
"""Field of a batch's header → its place and format."""
COVERED_FROM = 21
SNAPSHOT = {"version": (0, "h"), "crc": (2, "I"), "count": (6, "i"), "producer_id": (10, "q"), "last_offset": (24, "q")}
COUNTS = frozenset({"base_offset", "length", "last_offset_delta", "record_count", "count"})
TEXTS = (-(2**63), -1, 0, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64, 10**30)
STARTS = ({"clean": True}, {"clean": False, "recovery_point": 9})
CASE_S_MAX = 1.0


class Case(NamedTuple):
    """One number in one file."""

    file: str
    field: str
    value: int
    data: bytes


def ends(form: str, left: int) -> list[int]:
    bits = 8 * struct.calcsize(form)
    if form.isupper():
        return [0, 2**bits - 1]
    return sorted({-(2 ** (bits - 1)), -1, 0, min(left + 1, 2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1})


def replaced(data: bytes, at: int, form: str) -> Iterator[tuple[int, bytearray]]:
    for value in ends(form, len(data) - at - struct.calcsize(form)):
        changed = bytearray(data)
        struct.pack_into(">" + form, changed, at, value)
        yield value, changed


def cases_of_segment(path: Path) -> Iterator[Case]:
    data = path.read_bytes()
    batches = list(iterate(data))
    for position, header in (batches[0], batches[-1]):
        for field, (at, form) in BATCH.items():
            for value, changed in replaced(data, position + at, form):
                yield Case(path.name, field, value, bytes(changed))
                if at >= COVERED_FROM:
                    covered = bytes(changed[position + COVERED_FROM : position + header.size_bytes])
                    struct.pack_into(">I", changed, position + COVERED_FROM - 4, google_crc32c.value(covered))
                    yield Case(path.name, field, value, bytes(changed))


def cases_of_index(path: Path, forms: str) -> Iterator[Case]:
    data = path.read_bytes()
    for start in range(0, len(data), struct.calcsize(">" + forms)):
        for number, form in enumerate(forms):
            at = start + struct.calcsize(">" + forms[:number])
            for value, changed in replaced(data, at, form):
                yield Case(path.name, f"entry at {start}", value, bytes(changed))


def cases_of_snapshot(path: Path) -> Iterator[Case]:
    data = path.read_bytes()
    for field, (at, form) in SNAPSHOT.items():
        for value, changed in replaced(data, at, form) if at < len(data) else ():
            yield Case(path.name, field, value, bytes(changed))
            if at >= 6:
                struct.pack_into(">I", changed, 2, google_crc32c.value(bytes(changed[6:])))
                yield Case(path.name, field, value, bytes(changed))


def cases_of_epochs(path: Path) -> Iterator[Case]:
    lines = [line.split(" ") for line in path.read_text().split("\n")]
    for row, words in enumerate(lines):
        for column in range(len(words)):
            for value in TEXTS:
                words_after = [*words[:column], str(value), *words[column + 1 :]]
                text = "\n".join(" ".join(each) for each in (*lines[:row], words_after, *lines[row + 1 :]))
                yield Case(path.name, "count" if row == 1 else f"line {row}", value, text.encode())


def cases(directory: Path) -> Iterator[Case]:
    for path in sorted(directory.iterdir()):
        if path.suffix == ".log":
            yield from cases_of_segment(path)
        elif path.suffix in (".index", ".timeindex"):
            yield from cases_of_index(path, "ii" if path.suffix == ".index" else "qi")
        elif path.suffix == ".snapshot":
            yield from cases_of_snapshot(path)
        elif path.name == "leader-epoch-checkpoint":
            yield from cases_of_epochs(path)


def opened(directory: Path, **options: object) -> PartitionLog:
    config = LogConfig(segment_bytes=1200)
    names = {"topic": "orders", "partition": 0, "topic_id": TOPIC_ID, "directory_id": DIRECTORY_ID, "config": config}
    return PartitionLog.open(directory, **(names | options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a log with three segments, four epochs, a producer, and compressed batches."""
    directory = tmp_path_factory.mktemp("whole") / "orders-0"
    directory.mkdir()
    log = opened(directory)
    for number in range(12):
        records = [Record(b"k", b"v" * 60, 1000 + 10 * number + index) for index in range(3)]
        data = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=3 * number)
        if number % 3 == 2:
            data = encode_batch(read_header(data)._replace(attributes=1), compress("gzip", data[HEADER_BYTES:]))
        log.append_as_leader(data, number // 3)
    log.flush(with_index=True)
    log.write_producers()
    log.close()
    return directory


def use(directory: Path, **options: object) -> None:
    """Open a log and use it in every way; whatever is damaged is a LogError."""
    try:
        log = opened(directory, **options)
    except LogError:
        return
    steps = (
        lambda: log.read(log.log_start_offset, 10_000),
        lambda: log.read(max(log.log_start_offset, log.log_end_offset - 1), 10_000),
        log.digest,
        lambda: find_offset(log, 1050),
        lambda: find_offset(log, -3),
        lambda: find_offset(log, 2**63 - 1),
        lambda: log.append_as_leader(batch(), 60),
        lambda: log.delete_old_segments(10**15),
        lambda: log.truncate_to(max(log.log_start_offset, log.log_end_offset - 4)),
        lambda: log.flush(with_index=True),
        log.write_producers,
        log.close,
    )
    for step in steps:
        with contextlib.suppress(LogError):
            step()


def check(whole: Path, directory: Path, case: Case, **options: object) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    (directory / case.file).write_bytes(case.data)
    begun = time.process_time()
    try:
        use(directory, **options)
    except Exception as error:
        raise AssertionError(f"{case.file}, {case.field} = {case.value}, {options}") from error
    assert time.process_time() - begun < CASE_S_MAX, case[:3]


def test_a_count_or_length_in_a_file_of_a_log_is_never_believed(whole: Path, tmp_path: Path) -> None:
    counts = [case for case in cases(whole) if case.field in COUNTS]
    assert {case.file for case in counts} >= {path.name for path in whole.iterdir() if path.suffix in (".log", ".snapshot")}
    for number, case in enumerate(counts):
        check(whole, tmp_path / "log", case, **STARTS[number % 2])


@pytest.mark.nightly
def test_no_number_in_a_file_of_a_log_is_believed(whole: Path, tmp_path: Path) -> None:
    for case in cases(whole):
        for options in STARTS:
            check(whole, tmp_path / "log", case, **options)


@pytest.mark.parametrize("name", ["log_start_offset", "high_watermark", "recovery_point", "cleaned_to"])
def test_an_offset_in_a_checkpoint_of_a_directory_is_never_believed(whole: Path, tmp_path: Path, name: str) -> None:
    for offset in (1, 5, 36, 37, 2**31, 2**63 - 1, 2**64):
        case = Case("leader-epoch-checkpoint", name, offset, (whole / "leader-epoch-checkpoint").read_bytes())
        check(whole, tmp_path / "log", case, clean=False, **{name: offset})
