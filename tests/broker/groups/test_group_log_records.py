"""Records of `__consumer_offsets`: Apache Kafka 4.3's own bytes, and every version there and back."""

from __future__ import annotations

import contextlib
import time
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.groups.log_records import decode_group_value, decode_key, decode_offset_value, encode_key, encode_value
from kraftlab.messages.generated.group_metadata_key import GroupMetadataKey
from kraftlab.messages.generated.group_metadata_value import GroupMetadataValue, MemberMetadata
from kraftlab.messages.generated.offset_commit_key import OffsetCommitKey
from kraftlab.messages.generated.offset_commit_value import OffsetCommitValue

TOPIC_ID = "dd646760b5d54180b3390e296d0f3f13"
MEMBER_ID = "instance-1-3615eeab-ea39-4ae0-8586-ec82a036fcb8"
MEMBER_ID_HEX = f"002f{MEMBER_ID.encode().hex()}"
SUBSCRIPTION = "00000000000100066f726465727300000000"
ASSIGNMENT = "00000000000100066f7264657273000000010000000000000000"

# Written by Apache Kafka 4.3.0 for two kafka-python consumers, one of them a static member.
KEYS_OF_KAFKA = {
    "0002000762696c6c696e67": GroupMetadataKey("billing"),
    "0001000762696c6c696e6700066f726465727300000000": OffsetCommitKey("billing", "orders", 0),
}
OFFSETS_OF_KAFKA = {
    f"000400000000000000070000000006c3a974c3a9000001a20dbe66f2010010{TOPIC_ID}": OffsetCommitValue(
        offset=7, leader_epoch=0, metadata="été", commit_timestamp=0x1A20DBE66F2, topic_id=bytes.fromhex(TOPIC_ID)
    ),
    f"0004000000000000000affffffff01000001a20dbe66fb010010{TOPIC_ID}": OffsetCommitValue(
        offset=10, commit_timestamp=0x1A20DBE66FB, topic_id=bytes.fromhex(TOPIC_ID)
    ),
}
GROUPS_OF_KAFKA = {
    "0003000000000000ffffffff000001a20dbe666e00000000": GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0x1A20DBE666E
    ),
    "00030008636f6e73756d657200000003ffffffff000001a20dbe67d700000000": GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, current_state_timestamp=0x1A20DBE67D7
    ),
    f"00030008636f6e73756d657200000001000572616e6765{MEMBER_ID_HEX}000001a20dbe669900000001{MEMBER_ID_HEX}"
    "000a696e7374616e63652d310008636c69656e742d61000a2f3132372e302e302e31000493e00000afc8"
    f"00000012{SUBSCRIPTION}0000001a{ASSIGNMENT}": GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=MEMBER_ID,
        current_state_timestamp=0x1A20DBE6699,
        members=(
            MemberMetadata(
                member_id=MEMBER_ID,
                group_instance_id="instance-1",
                client_id="client-a",
                client_host="/127.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=bytes.fromhex(SUBSCRIPTION),
                assignment=bytes.fromhex(ASSIGNMENT),
            ),
        ),
    ),
}

LATER_FIELDS = {
    "leader_epoch": {3, 4},
    "expire_timestamp": {1},
    "topic_id": {4},
    "current_state_timestamp": {2, 3, 4},
    "rebalance_timeout": {1, 2, 3, 4},
    "group_instance_id": {3, 4},
}
"""Fields that some versions do not have → the versions that do."""
T = TypeVar("T", bound=msgspec.Struct)
TEXT = st.text(max_size=200)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, INT64, st.binary(min_size=16, max_size=16))
MEMBERS = st.builds(
    MemberMetadata, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(max_size=200), st.binary(max_size=200)
)
GROUPS = st.builds(
    GroupMetadataValue, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS, max_size=3).map(tuple)
)


@pytest.mark.parametrize(("data", "key"), KEYS_OF_KAFKA.items())
def test_keys_are_the_bytes_of_kafka(data: str, key: OffsetCommitKey | GroupMetadataKey) -> None:
    assert encode_key(key).hex() == data
    assert decode_key(bytes.fromhex(data)) == key


@pytest.mark.parametrize(("data", "value"), OFFSETS_OF_KAFKA.items())
def test_offsets_are_the_bytes_of_kafka(data: str, value: OffsetCommitValue) -> None:
    assert encode_value(value, 4).hex() == data
    assert decode_offset_value(bytes.fromhex(data)) == value


@pytest.mark.parametrize(("data", "value"), GROUPS_OF_KAFKA.items())
def test_groups_are_the_bytes_of_kafka(data: str, value: GroupMetadataValue) -> None:
    assert encode_value(value, 3).hex() == data
    assert decode_group_value(bytes.fromhex(data)) == value


@given(st.builds(OffsetCommitKey, TEXT, TEXT, INT32) | st.builds(GroupMetadataKey, TEXT))
def test_a_key_is_read_as_it_was_written(key: OffsetCommitKey | GroupMetadataKey) -> None:
    assert decode_key(encode_key(key)) == key


@given(OFFSETS, st.integers(0, 4))
def test_an_offset_is_read_as_it_was_written(value: OffsetCommitValue, version: int) -> None:
    assert decode_offset_value(encode_value(value, version)) == without_later_fields(value, version)


@given(GROUPS, st.integers(0, 4))
def test_a_group_is_read_as_it_was_written(value: GroupMetadataValue, version: int) -> None:
    members = tuple(without_later_fields(member, version) for member in value.members)
    expected = msgspec.structs.replace(without_later_fields(value, version), members=members)
    assert decode_group_value(encode_value(value, version)) == expected


def without_later_fields(value: T, version: int) -> T:
    given = {name: getattr(value, name) for name in value.__struct_fields__}
    return type(value)(**{name: each for name, each in given.items() if version in LATER_FIELDS.get(name, {version})})


def test_keys_of_other_types_are_skipped() -> None:
    """Kafka's newer consumer groups write types from 3 on."""
    assert decode_key(bytes.fromhex("0003000762696c6c696e67")) is None


def test_the_oldest_type_of_an_offset_is_read() -> None:
    assert decode_key(bytes.fromhex("0000000762696c6c696e6700066f726465727300000000")) == OffsetCommitKey("billing", "orders", 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    data, value = next(iter(OFFSETS_OF_KAFKA.items()))
    tagged = bytes.fromhex(data[: -len(f"010010{TOPIC_ID}")] + f"020010{TOPIC_ID}0902abcd")
    assert decode_offset_value(tagged) == value


@given(st.data())
def test_cut_bytes_are_malformed(data: st.DataObject) -> None:
    written = bytes.fromhex(data.draw(st.sampled_from([*OFFSETS_OF_KAFKA, *GROUPS_OF_KAFKA])))
    decode = decode_offset_value if written[1] == 4 else decode_group_value
    with pytest.raises(ValueError, match=r"malformed (OffsetCommit|GroupMetadata)Value"):
        decode(written[: data.draw(st.integers(0, len(written) - 1))])


@given(st.binary(max_size=100))
def test_random_bytes_are_a_record_or_malformed(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(data)
        except ValueError as error:
            assert "malformed" in str(error) or "has version" in str(error)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("0001", "malformed key of __consumer_offsets: the message is longer than its 0 bytes"),
        ("0001ffff", "malformed key of __consumer_offsets: group is null before byte 4, which its schema does not allow"),
        ("00020001ff", "malformed key of __consumer_offsets: a text is not UTF-8: invalid start byte"),
        ("00020000ff", "malformed key of __consumer_offsets: 1 bytes after the last field, at byte 4"),
    ],
)
def test_a_malformed_key_is_refused(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_key(bytes.fromhex(data))


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="OffsetCommitValue has version 5, expected 0 to 4"):
        decode_offset_value(bytes.fromhex("0005"))


@pytest.mark.parametrize("lie", ["ffffffff", "7fffffff", "80000000", "00000000", "ffff", "7fff", "ffffffff0f", "00"])
def test_no_count_or_length_of_a_record_is_believed(lie: str) -> None:
    """Whatever numbers take the place of a record's bytes: a value, or a ValueError, at once."""
    recorded = (
        *((decode_key, data) for data in KEYS_OF_KAFKA),
        *((decode_offset_value, data) for data in OFFSETS_OF_KAFKA),
        *((decode_group_value, data) for data in GROUPS_OF_KAFKA),
    )
    new = bytes.fromhex(lie)
    for decode, text in recorded:
        data = bytes.fromhex(text)
        for at in range(len(data)):
            begun = time.process_time()
            with contextlib.suppress(ValueError):
                decode(data[:at] + new + data[at + len(new) :])
            assert time.process_time() - begun < 1
