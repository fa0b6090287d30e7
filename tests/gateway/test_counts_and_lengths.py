"""No count or length of a frame is believed, and every number of a field is read."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraftlab.gateway.client_codec import MalformedResponse, decode_response
from kraftlab.gateway.codec import MalformedRequest, decode_request
from kraftlab.messages.catalog import response_class
from kraftlab.messages.reading import ELEMENTS_MAX
from kraftlab.messages.writing import uvarint

from . import whole_messages as messages

OVERSIZED = [
    "0003000c00000001000178" + "00" + "ffffffff0f",  # Metadata 12
    "0000000900000001000178" + "00" + "00" + "0001" + "00000000" + "ffffffff0f",  # Produce 9
    "0013000500000001000178" + "00" + "ffffffff0f",  # CreateTopics 5
    "0013000700000001000178" + "00" + "ffffffff0f",
    "000a000400000001000178" + "00" + "00" + "ffffffff0f",  # FindCoordinator 4
    "0020000400000001000178" + "00" + "ffffffff0f",  # DescribeConfigs 4
    "0003000100000001000178" + "7fffffff",  # Metadata 1
]


@pytest.mark.parametrize("frame", OVERSIZED)
def test_an_array_that_is_longer_than_its_frame_is_malformed(frame: str) -> None:
    with pytest.raises(
        MalformedRequest, match=r"an array of \d+ elements of at least \d+ bytes at byte \d+, where \d bytes are left"
    ):
        decode_request(bytes.fromhex(frame))


@pytest.mark.parametrize(
    "frame",
    [
        "0002000100000001000178" + "ffffffff" + "ffffffff",  # ListOffsets 1
        "0000000900000001000178" + "00" + "00" + "0001" + "00000000" + "00" + "00",  # Produce 9
        "0003000000000001000178" + "ffffffff",  # Metadata 0, whose empty array stands for all topics
    ],
)
def test_an_array_that_must_not_be_null_is_malformed_without_elements(frame: str) -> None:
    with pytest.raises(MalformedRequest, match="a null array, which its schema does not allow"):
        decode_request(bytes.fromhex(frame))


def test_an_array_that_may_be_null_is_read() -> None:
    assert decode_request(bytes.fromhex("0003000100000001000178" + "ffffffff")).body.topics is None


def swept(versions: str) -> dict[str, object]:
    """Run the sweep in a process of its own, which a believed count would end."""
    command = [sys.executable, str(Path(__file__).with_name("count_sweep.py")), versions]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_no_count_or_length_is_believed_in_the_oldest_and_newest_versions() -> None:
    found = swept("ends")
    assert found["faults"] == []
    assert found["read"] > 500  # type: ignore[operator]
    assert found["refused"] > 4000  # type: ignore[operator]


@pytest.mark.nightly
def test_no_count_or_length_is_believed_in_any_version() -> None:
    found = swept("all")
    assert found["faults"] == []
    assert found["refused"] > 10_000  # type: ignore[operator]


def test_the_elements_of_a_request_are_bounded() -> None:
    """DescribeGroups version 5 with so many empty names: each takes one byte in the frame, and far more as an object."""
    head = struct.pack(">hhih", 15, 5, 5, -1) + b"\x00"

    def frame(count: int) -> bytes:
        return head + uvarint(count + 1) + b"\x01" * count + b"\x00\x00"

    assert len(decode_request(frame(ELEMENTS_MAX)).body.groups) == ELEMENTS_MAX
    with pytest.raises(MalformedRequest, match="too many elements"):
        decode_request(frame(ELEMENTS_MAX + 1))


def test_the_tagged_fields_of_a_request_are_bounded() -> None:
    """Metadata version 12 with so many unknown tagged fields without bytes: each takes two bytes in the frame."""
    head = bytes.fromhex("0003000c00000001000178" + "00" + "00" + "0000")

    def frame(count: int, fields: int) -> bytes:
        return head + uvarint(count) + b"\x05\x00" * fields

    assert decode_request(frame(ELEMENTS_MAX // 100, ELEMENTS_MAX // 100)).body.topics is None
    with pytest.raises(MalformedRequest, match="too many elements"):
        decode_request(frame(ELEMENTS_MAX + 1, ELEMENTS_MAX + 1))
    with pytest.raises(MalformedRequest, match="a section of 11 tagged fields of at least 2 bytes"):
        decode_request(frame(11, 10))


@pytest.mark.parametrize(("key", "version"), messages.offered(all_versions=False))
def test_a_request_with_any_number_at_its_ends_is_read(key: int, version: int) -> None:
    message = messages.request(key, version)
    for place in message.places:
        if place.kind in "bBhHiIqQ" and not place.field.startswith("header"):
            for number in messages.ends(place):
                decode_request(messages.replaced(message.data, place, struct.pack(">" + place.kind, number)))


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention", [-(2**63), -1, 0, 86_400_000, 2**62, 2**63 - 1])
def test_a_retention_of_any_length_is_read(version: int, retention: int) -> None:
    frame = bytes(messages.request(8, version, {"retention_time": retention}).data)
    assert decode_request(frame).body.retention_time_ms == retention


@pytest.mark.parametrize(("byte", "is_true"), [(0, False), (1, True), (2, True), (255, True)])
def test_every_byte_but_0_is_true(byte: int, is_true: bool) -> None:
    message = messages.request(3, 12)
    [place] = [each for each in message.places if each.field.endswith("allow_auto_topic_creation")]
    body = decode_request(messages.replaced(message.data, place, bytes([byte]))).body
    assert body.allow_auto_topic_creation is is_true
    assert body.topics[0].topic_id == bytes(range(16))


@pytest.mark.parametrize("code", [-1, 3, 999, 32_767, -32_768])
def test_the_error_of_a_newer_broker_is_read(code: int) -> None:
    message = messages.response(10, 3)
    [place] = [each for each in message.places if each.field.endswith("error_code")]
    body: Any = decode_response(messages.replaced(message.data, place, struct.pack(">h", code)), response_class(10), 3)
    assert body.error_code == code


def test_an_answer_that_claims_too_much_is_malformed() -> None:
    message = messages.response(3, 12)
    [place] = [each for each in message.places if each.field.endswith(".brokers") and each.kind == "varint"]
    with pytest.raises(MalformedResponse, match="an array of 4294967294 elements"):
        decode_response(messages.replaced(message.data, place, uvarint(2**32 - 1)), response_class(3), 12)
