"""`silver.log_dir_samples` from the brokers' descriptions of their log directories.

The input is the document of `kraftlab log-dirs --describe --json`, or the output of Kafka's own tool, which lacks ids and sizes
of directories.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from kraftlab.config.json_files import BadJson, decode_json

from ..errors import WrongUse
from ..storage.schemas import arrow_schema

TABLE = "silver.log_dir_samples"
_NUMBER = re.compile(r"[0-9]{1,9}")


class _Partition(msgspec.Struct, rename="camel"):
    partition: str
    size: int
    offset_lag: int
    is_future: bool


class _Directory(msgspec.Struct, rename="camel"):
    log_dir: str
    partitions: list[_Partition]
    error: str | None = None
    directory_id: str | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None


class _Broker(msgspec.Struct, rename="camel"):
    broker: int
    log_dirs: list[_Directory]


class _Document(msgspec.Struct):
    brokers: list[_Broker]


def samples(document: bytes, sampled_ms: int, topic_ids: Mapping[str, str] = {}) -> pa.Table:
    """Return the table's rows. A directory without replicas is one row without a topic. Lines before the JSON are skipped:
    Kafka's tool prints some. WrongUse for any other document.
    """
    document = document.removeprefix(BOM_UTF8)
    text = next((line for line in document.splitlines() if line.startswith(b"{")), document)
    try:
        found = decode_json(document if document.lstrip().startswith(b"{") else text, _Document)
    except BadJson as error:
        raise WrongUse(f"the input is not a description of log directories: {error}; see: kraftlab log-dirs --help") from None
    rows = [row for broker in found.brokers for row in _rows(broker, sampled_ms, topic_ids)]
    return pa.Table.from_pylist(rows, schema=arrow_schema(TABLE))


def _rows(broker: _Broker, sampled_ms: int, topic_ids: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for directory in broker.log_dirs:
        shared = {
            "sampled_ms": sampled_ms,
            "broker_id": broker.broker,
            "dir_id": directory.directory_id or None,
            "path": directory.log_dir,
            "dir_total_bytes": directory.total_bytes,
            "dir_usable_bytes": directory.usable_bytes,
            "error": directory.error,
        }
        if not directory.partitions:
            yield shared
        for entry in directory.partitions:
            topic, separator, index = entry.partition.rpartition("-")
            if not separator or not _NUMBER.fullmatch(index):
                raise WrongUse(f"{entry.partition!r} is not a partition: expected TOPIC-NUMBER")
            yield shared | {
                "topic": topic,
                "topic_id": topic_ids.get(topic),
                "partition": int(index),
                "size_bytes": entry.size,
                "offset_lag": entry.offset_lag,
                "is_future": entry.is_future,
            }
