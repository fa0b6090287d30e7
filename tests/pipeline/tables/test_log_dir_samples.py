"""Descriptions of log directories as rows."""

from __future__ import annotations

import json

import pytest

from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.storage.schemas import arrow_schema
from kraftlab.pipeline.tables.log_dir_samples import samples

OURS = {
    "brokers": [
        {
            "broker": 3,
            "logDirs": [
                {
                    "partitions": [{"partition": "a-b-0", "size": 10, "offsetLag": 2, "isFuture": True, "bytesLeft": 5}],
                    "error": None,
                    "logDir": "/d0",
                    "directoryId": "AAECAwQFBgcICQoLDA0ODw",
                    "totalBytes": 100,
                    "usableBytes": 60,
                    "strays": [],
                },
                {"partitions": [], "error": "org.apache.kafka.common.errors.KafkaStorageException", "logDir": "/d1"},
            ],
        }
    ],
    "version": 1,
}


def test_a_replica_is_a_row_and_so_is_a_directory_without_any() -> None:
    table = samples(json.dumps(OURS).encode(), 5, {"a-b": "id"})
    assert table.schema == arrow_schema("silver.log_dir_samples")
    replica, directory = table.to_pylist()
    assert replica == {
        "sampled_ms": 5,
        "broker_id": 3,
        "dir_id": "AAECAwQFBgcICQoLDA0ODw",
        "path": "/d0",
        "topic_id": "id",
        "topic": "a-b",
        "partition": 0,
        "size_bytes": 10,
        "offset_lag": 2,
        "is_future": True,
        "dir_total_bytes": 100,
        "dir_usable_bytes": 60,
        "error": None,
    }
    assert (directory["path"], directory["topic"], directory["dir_id"]) == ("/d1", None, None)
    assert directory["error"].endswith("KafkaStorageException")


def test_lines_that_kafkas_tool_prints_first_are_passed_over() -> None:
    text = "Querying brokers for log directories information\nReceived …\n" + json.dumps(OURS)
    assert samples(text.encode(), 1).num_rows == 2
    assert samples(json.dumps(OURS, indent=2).encode(), 1).num_rows == 2


@pytest.mark.parametrize(
    "document", [b"", b"[]", b'{"brokers": [{"broker": "x"}]}', json.dumps(OURS).encode().replace(b"/d1", b"/\xff")]
)
def test_other_documents_are_refused(document: bytes) -> None:
    with pytest.raises(WrongUse, match="not a description of log directories"):
        samples(document, 1)
