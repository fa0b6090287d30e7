"""No table and no dump shows a secret of a metadata log, ours or Kafka's: everything that can be read is searched for it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.metadata import records as r
from kraftlab.pipeline.framing import Frame, walk
from kraftlab.pipeline.kraft_log.dump import dump_file
from kraftlab.pipeline.kraft_log.frames import KafkaFormat
from kraftlab.pipeline.kraft_log.records import METADATA_RECORDS
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import build
from kraftlab.pipeline.sources.bronze_pass import BATCHES, QUARANTINE
from kraftlab.pipeline.sources.formats import KAFKA, KRAFTLAB
from kraftlab.pipeline.sources.secret_values import hide_batch

from ...helpers.lakes import SPARK, ingest

SALT, STORED, SERVER, PASSWORD = b"marker-salt-0001", b"S" * 31 + b"\x21", b"V" * 32, "marker-password"
SECRETS = (SALT, STORED, SERVER, PASSWORD.encode())
KEY = "listener.name.a.ssl.keystore.password"
Make = Callable[..., Any]

OWN = [
    r.Topic(0, "t", bytes(16)),
    r.UserScramCredential(0, "alice", 1, SALT, STORED, SERVER, 4096),
    r.Config(0, 4, "1", KEY, PASSWORD),
    r.Config(0, 4, "1", "sasl.jaas.config", f"password='{PASSWORD}';"),
    r.Config(0, 2, "t", "retention.ms", "7"),
]
NEWER = r.UserScramCredential(9, "alice", 1, SALT, STORED, SERVER, 4096)
"""A version that this program does not know."""


def forms_of(secret: bytes) -> tuple[bytes, ...]:
    """The secret as it could be shown."""
    return secret, base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret).rstrip(b"="), secret.hex().encode()


def assert_shows_no_secret(shown: bytes) -> None:
    for secret in SECRETS:
        for form in forms_of(secret):
            assert form not in shown


def bytes_of(value: object) -> bytes:
    """A table's cell, as bytes in which a secret would be found."""
    return value if isinstance(value, bytes) else str(value).encode()


def kafka_values(encode: Make, frame: Make) -> list[bytes]:
    schemas = {schema.name: schema for schema in METADATA_RECORDS}

    def value(kind: str, **fields: Any) -> bytes:
        return bytes(frame(schemas[kind].number, 0, encode(schemas[kind], 0, fields)))

    salt, stored, server = (base64.b64encode(secret).decode() for secret in (SALT, STORED, SERVER))
    keys = {"name": "alice", "mechanism": 1, "storedKey": stored, "serverKey": server, "iterations": 4096}
    credential = value("USER_SCRAM_CREDENTIAL_RECORD", salt=salt, **keys)
    short = value("USER_SCRAM_CREDENTIAL_RECORD", salt=base64.b64encode(b"!").decode(), **keys)
    return [
        value("TOPIC_RECORD", name="t", topicId="A" * 22),
        credential,
        short,
        value("CONFIG_RECORD", resourceType=4, resourceName="1", name=KEY, value=PASSWORD),
        value("CONFIG_RECORD", resourceType=2, resourceName="t", name="retention.ms", value="7"),
        credential[:2] + b"\x09" + credential[3:],
    ]


@pytest.fixture(params=[KRAFTLAB, KAFKA])
def log(request: pytest.FixtureRequest, own_log: Make, tmp_path: Path, encode: Make, frame: Make, batch: Make) -> Any:
    """(format, a segment with secrets in all places: records, a newer version, a damaged batch)."""
    if request.param == KRAFTLAB:
        own = own_log(1)
        path = own.segment(own.batch(OWN) + own.batch([NEWER]) + own.batch([r.Topic(0, "end", bytes(15) + b"1")]), base_offset=0)
        return request.param, own.directory, path
    directory = tmp_path / "n1" / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    values = kafka_values(encode, frame)
    damaged = bytearray(batch([values[1]], len(values)))
    damaged[-1] ^= 1
    end = batch([values[0]], len(values) + 1)
    path = directory / f"{0:020}.log"
    path.write_bytes(batch(values) + damaged + end)
    return request.param, directory, path


def test_tables_of_a_lake_show_no_secret_and_lose_nothing_else(log: Any, tmp_path: Path) -> None:
    name, directory, _ = log
    lake = Lake(str(tmp_path / "lake"))
    ingest(lake, name, directory)
    build.build(SPARK, lake)
    for table in (BATCHES, QUARANTINE, *build.TABLES):
        for row in lake.arrow(table).to_pylist():
            for value in row.values():
                assert_shows_no_secret(bytes_of(value))
    configs = {row["key"]: row["value"] for row in lake.arrow(build.CONFIGS).to_pylist()}
    assert configs["retention.ms"] == "7" and configs[KEY] == "[hidden]"
    assert "t" in lake.arrow(build.TOPICS)["name"].to_pylist()
    types = [row["name"] for row in lake.arrow(build.OTHER).to_pylist()]
    assert types.count("USER_SCRAM_CREDENTIAL_RECORD") >= 2


def test_rows_of_records_and_of_damages_show_no_secret(log: Any, rows_of: Make) -> None:
    name, directory, _ = log
    for rows in ("records", "damages", "batches"):
        found = rows_of(name, directory, rows=rows)
        for row in found:
            for value in row.values():
                assert_shows_no_secret(bytes_of(value))
        assert found or (rows, name) == ("damages", KRAFTLAB)


def test_a_dump_shows_no_secret(log: Any) -> None:
    name, _, path = log
    if name == KAFKA:
        text = b"\n".join(line.json for line in dump_file(path))
        assert b'"name":"alice"' in text and b"[hidden]" in text and b'"value":"7"' in text
        assert_shows_no_secret(text)


@given(st.data())
def test_a_batch_keeps_its_length_whatever_is_in_it(data: st.DataObject) -> None:
    """Also if its records cannot be decoded; `crc` is not checked here, since a writer can have any fault."""
    body = bytearray(msgspec.msgpack.encode([*OWN, NEWER]))
    for _ in range(data.draw(st.integers(0, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(1, len(body)))]
    count = data.draw(st.integers(1, 8))
    whole = Frame(0, 48 + len(body), 0, count - 1, 1, 0, count, 0, "none", False, -1, bytes(48) + bytes(body))
    assert len(hide_batch(whole, is_kafka=False).data) == len(whole.data)


def test_a_batch_without_secrets_keeps_its_bytes(encode: Make, frame: Make, batch: Make) -> None:
    first, *_, config, _ = kafka_values(encode, frame)
    data = batch([first, config, first])
    (whole,) = walk(lambda at, size: data[at : at + size], len(data), KafkaFormat())
    assert isinstance(whole, Frame) and hide_batch(whole, is_kafka=True) is whole
