"""Secrets of a metadata log, hidden before they reach a table: keys and salts of SCRAM users, and values of secret configs.

A table keeps batches as they are in the log, byte for byte. Where a batch holds a secret, zeros take its place, of the same
length: the batch is decoded as before, and its `crc` stays that of the log. Records of such types that cannot be decoded, and
damaged stretches that may hold a credential, are left out as a whole. Nothing else is changed.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator

import msgspec

from kraftlab.config.secrets import looks_secret
from kraftlab.metadata.records import Config, UserScramCredential

from ..framing import Frame
from ..kraft_log.batches import UndecodedRecord
from ..kraft_log.errors import UndecodableRecord
from ..kraft_log.reader import record_values
from ..kraft_log.records import decode_metadata as decode_kafka
from ..kraft_log.secret_values import BYTES_OF_CREDENTIAL, CONFIG, CREDENTIAL, HEAD_BYTES, hide_fields, may_hold_credential
from ..own_log.records import decode_metadata as decode_own
from ..own_log.records import split

_WORDS = (b"password", b"secret", b"jaas", b"credential", b"token", b".key", b".users", b".certificates")
_KAFKA_STARTS, _OWN_STARTS = (b"\x01\x0b", b"\x01\x04"), (b"\x98\x0b", b"\x95\x04")
"""Beginnings of a credential and of a config."""
_OWN_HEADER_BYTES = 48
_BIN, _BIN_HEAD = 0xC6, struct.Struct(">BI")
_encode = msgspec.msgpack.Encoder().encode


def hide_damage(raw: bytes) -> bytes:
    """Return damaged bytes, none of them if they may hold a credential."""
    return b"" if may_hold_credential(raw) else raw


def _may_hold_secret(data: bytes, starts: tuple[bytes, bytes]) -> bool:
    """Look for the beginnings of records before anything is decoded: few batches have them."""
    credential, config = starts
    return credential in data or (config in data and any(word in data for word in _WORDS))


def hide_batch(frame: Frame, *, is_kafka: bool) -> Frame:
    """Return a batch with zeros instead of secrets."""
    data = frame.data
    if frame.is_control or not _may_hold_secret(data, _KAFKA_STARTS if is_kafka else _OWN_STARTS):
        return frame
    for found, hidden in _kafka_records(data) if is_kafka else _own_records(frame):
        if len(found) > HEAD_BYTES:  # a shorter record has no fields
            data = data.replace(found, hidden)
    return frame if data is frame.data else frame._replace(data=data)


def _zeros(record: bytes) -> bytes:
    return record[:HEAD_BYTES].ljust(len(record), b"\0")


def _own_records(frame: Frame) -> Iterator[tuple[bytes, bytes]]:
    """Yield (bytes, bytes with zeros) of each record that holds a secret."""
    body = frame.data[_OWN_HEADER_BYTES:]
    records = decode_own(body, frame.base_offset, frame.record_count)
    for record, raw in zip(records, split(body, frame.base_offset, frame.record_count), strict=False):
        if not isinstance(raw, bytes):
            if may_hold_credential(raw.raw):
                yield raw.raw, _zeros(raw.raw)
        elif isinstance(record, UndecodedRecord):
            if record.type_number in (CREDENTIAL, CONFIG):
                yield raw, _filled(record, len(raw))
        elif isinstance(record, UserScramCredential):
            salt, stored, server = (bytes(len(value)) for value in (record.salt, record.stored_key, record.server_key))
            hidden = _encode(msgspec.structs.replace(record, salt=salt, stored_key=stored, server_key=server))
            yield raw, hidden if len(hidden) == len(raw) else _filled(record, len(raw))
        elif isinstance(record, Config) and record.value is not None and looks_secret(record.name):
            hidden = _encode(msgspec.structs.replace(record, value="\0" * len(record.value.encode())))
            yield raw, hidden if len(hidden) == len(raw) else _filled(record, len(raw))


def _filled(record: UndecodedRecord | UserScramCredential | Config, size: int) -> bytes:
    """Return a record of ours with zeros instead of all fields: an array as before, so that the records after it are found."""
    number = record.type_number if isinstance(record, UndecodedRecord) else record.TYPE
    start = b"\x93" + _encode(number) + _encode(record.version)
    left = size - len(start) - _BIN_HEAD.size
    return bytes(size) if left < 0 else start + _BIN_HEAD.pack(_BIN, left) + bytes(left)


def _kafka_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (bytes, bytes with zeros) of each record that holds a secret."""
    for entry in record_values(data):
        value = entry.raw if isinstance(entry, UndecodedRecord) else entry[2]
        try:
            name, _, fields = decode_kafka(value)
        except UndecodableRecord:
            if value[1:2] in (bytes([CREDENTIAL]), bytes([CONFIG])) or isinstance(entry, UndecodedRecord):
                yield value, _zeros(value)
            continue
        if hide_fields(name, fields) is fields:
            continue
        if name == "CONFIG_RECORD":
            yield value, _without(value, [str(fields["value"]).encode()])
        else:
            secrets = [base64.b64decode(str(fields[key])) for key in reversed(BYTES_OF_CREDENTIAL)]
            yield value, _without(value, secrets)


def _without(record: bytes, secrets: list[bytes]) -> bytes:
    """Return a record with zeros instead of its secrets, which are given from the last to the first."""
    hidden, end = bytearray(record), len(record)
    for secret in secrets:
        at = record.rfind(secret, 0, end)
        if at < 0:
            return _zeros(record)
        hidden[at : at + len(secret)] = bytes(len(secret))
        end = at - 1  # at least one byte of length stands between two fields
    return bytes(hidden)
