"""JSON files that people write: the same rules for each. Apache Kafka 4.3's tools refuse a mark and `"version":"1"` with a stack
trace; they do not look at the version of a file of elections.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.cli.output import BadInput
from kraftlab.cli.partition_files import read_partitions
from kraftlab.cli.reassign.plan import PlanError, parse_plan, parse_topics
from kraftlab.cli.zookeeper.znodes import parse_reassignments, parse_topic
from kraftlab.pipeline.tables.log_dir_samples import samples

PARTITIONS = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"offset":3}]}'
Read = Callable[[bytes, Path], object]


def read_from_file(data: bytes, directory: Path, *, with_offsets: bool) -> object:
    path = directory / "in.json"
    path.write_bytes(data)
    return read_partitions(path, "…", with_offsets=with_offsets)


READERS: dict[str, tuple[Read, bytes]] = {
    "reassignment": (lambda data, _: parse_plan(data), PARTITIONS),
    "topics to move": (lambda data, _: parse_topics(data), b'{"version":1,"topics":[{"topic":"t"}]}'),
    "deletion": (lambda data, directory: read_from_file(data, directory, with_offsets=True), PARTITIONS),
    "election": (lambda data, directory: read_from_file(data, directory, with_offsets=False), PARTITIONS),
    "reassignment znode": (lambda data, _: parse_reassignments("f", data), PARTITIONS),
    "znode": (lambda data, _: parse_topic("f", "t", data), b'{"version":1,"partitions":{"0":[1]}}\ncZxid = 0x24'),
    "log directories": (lambda data, _: samples(data, 1).num_rows, b'{"version":1,"brokers":[]}'),
}
KAFKAS = ("reassignment", "reassignment znode", "topics to move", "deletion")


@pytest.mark.parametrize("kind", READERS)
def test_a_byte_order_mark_changes_nothing(kind: str, tmp_path: Path) -> None:
    read, data = READERS[kind]
    assert read(b"\xef\xbb\xbf" + data, tmp_path) == read(data, tmp_path)


@pytest.mark.parametrize("kind", KAFKAS)
@pytest.mark.parametrize("version", [b'"1"', b"true", b"null"])
def test_a_version_that_is_no_number_is_refused_as_such(kind: str, version: bytes, tmp_path: Path) -> None:
    read, data = READERS[kind]
    with pytest.raises((PlanError, BadInput), match=r"Expected `int`, got `(str|bool|null)` - at `\$.version`"):
        read(data.replace(b'"version":1', b'"version":' + version), tmp_path)


def test_a_file_of_elections_may_have_any_version(tmp_path: Path) -> None:
    read, data = READERS["election"]
    assert read(data.replace(b'"version":1', b'"version":"1"'), tmp_path) == read(data, tmp_path)
