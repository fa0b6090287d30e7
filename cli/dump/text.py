"""Text of `dump-log` for one batch: pure functions, lines in the format of Kafka's tool, and JSON documents."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnreadableRecords
from kraftlab.metadata.record_text import IsSecret, camel_case, plain, record_document
from kraftlab.quorum.core import batch
from kraftlab.quorum.core.batch import ControlRecord, KRaftVoters, LeaderChange
from kraftlab.quorum.core.errors import CorruptBatch as CorruptMetadata
from kraftlab.quorum.core.types import VoterSet
from kraftlab.quorum.storage.survey import BrokenPlace, FoundBatch
from kraftlab.records.record_batch import TRANSACTIONAL, BatchHeader, StoredRecord

from ..stored_batches import Unreadable, stored_records

_MARKER_VALUE = struct.Struct(">hi")
"""Version and coordinator epoch of a transaction marker."""
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}


def batch_line(document: dict[str, object]) -> str:
    """Return the line of a batch from its document: `baseOffset: 0 lastOffset: 2 count: 3 …`."""
    shown = {"CreateTime" if name == "createTime" else name: value for name, value in document.items()}
    return " ".join(f"{name}: {_word(value)}" for name, value in shown.items() if name not in ("file", "records"))


def _word(value: Any) -> str:
    if value is None:
        return "OptionalLong.empty"
    return str(value).lower() if isinstance(value, bool) else str(value)


def broken_line(position: int, size_bytes: int, path: str, file_bytes: int, reason: str) -> str:
    """Return Kafka's line for a damaged tail, and a similar line for damage in the middle."""
    where = "the end" if position + size_bytes >= file_bytes else f"position {position}"
    at = f" from position {position} on" if where == "the end" else ""
    return f"Found {size_bytes} invalid bytes at {where} of {path}{at}: {reason}"


# --- the metadata log ----------------------------------------------------------------------------------------------------------


def metadata_batch(found: FoundBatch) -> dict[str, object]:
    """Return the fields of a batch of the metadata log, with the names and order of Kafka's tool."""
    header = found.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.end_offset - 1,
        "count": header.record_count,
        "baseSequence": -1,
        "lastSequence": -1,
        "producerId": -1,
        "producerEpoch": -1,
        "partitionLeaderEpoch": header.epoch,
        "isTransactional": False,
        "isControl": header.is_control,
        "deleteHorizonMs": None,
        "position": found.position,
        "createTime": header.append_time_ms,
        "size": header.size_bytes,
        "magic": 2,
        "compresscodec": "none",
        "crc": header.crc,
        "isvalid": not found.fault,
        "highWatermark": header.high_watermark,
        "previousCrc": header.previous_crc,
    }


def metadata_records(found: FoundBatch, is_secret: IsSecret) -> list[dict[str, object]]:
    """Return the records of a batch: `offset`, `createTime`, and `type`, `version`, `data`, or `control` and `data`; `error` for
    an unknown record.
    """
    header = found.header
    place = {"offset": header.base_offset, "createTime": header.append_time_ms}
    try:
        if header.is_control:
            control = batch.decode_control(found.body)
            shown: list[dict[str, Any]] = [{"valueSize": _size(record), **control_document(record)} for record in control]
        else:
            records = codec.decode(found.body, header.base_offset)
            shown = [{"valueSize": _size(record), **record_document(record, is_secret)} for record in records]
    except (CorruptMetadata, UnreadableRecords) as error:
        return [{**place, "error": str(error)}]
    return [{**place, "offset": offset, **document} for offset, document in enumerate(shown, header.base_offset)]


def _size(record: object) -> int:
    """Return the size of a record in its batch."""
    return len(msgspec.msgpack.encode(record))


def control_document(record: ControlRecord) -> dict[str, object]:
    """Return `{"control", "data"}` of a record of consensus."""
    data: dict[str, Any] = {}
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if isinstance(record, LeaderChange) and field in ("voters", "granting_voters"):
            data[camel_case(field)] = [{"voterId": voter} for voter in value]
        elif isinstance(record, KRaftVoters) and field == "voters":
            data["voters"] = _voters(value)
        elif field == "kraft_version":
            data["kRaftVersion"] = value
        elif field == "append_time_ms":
            data["lastContainedLogTimestamp"] = value
        else:
            data[camel_case(field)] = _voters(value) if isinstance(value, VoterSet) else plain(value)
    return {"control": type(record).__name__, "data": data}


def _voters(voters: VoterSet) -> list[dict[str, Any]]:
    return [
        {
            "voterId": voter.key.node_id,
            "voterDirectoryId": plain(voter.key.directory_id),
            "endpoints": [
                {"name": name, "host": endpoint.host, "port": endpoint.port} for name, endpoint in voter.endpoints.items()
            ],
        }
        for voter in voters.voters
    ]


def metadata_record_line(document: dict[str, object], *, with_place: bool) -> str:
    """Return `| offset: 4 CreateTime: … payload: {…}`; without the place only the record's content."""
    if "error" in document:
        return f"| unreadable: {document['error']}"
    place = f"offset: {document['offset']} CreateTime: {document['createTime']} keySize: -1 valueSize: {document['valueSize']} "
    head = f"| {place}sequence: -1 headerKeys: [] " if with_place else "| "
    if "control" in document:
        return f"{head}{document['control']} {_json(document['data'])}"
    return f"{head}payload: {_json({name: document[name] for name in ('type', 'version', 'data')})}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def broken_document(found: BrokenPlace) -> dict[str, object]:
    return {"position": found.position, "size": found.size_bytes, "isvalid": False, "error": found.reason}


# --- partitions' logs ----------------------------------------------------------------------------------------------------------


def data_batch(position: int, header: BatchHeader, fault: str) -> dict[str, object]:
    """Return the fields of a batch of a partition's log."""
    has_sequence = header.base_sequence >= 0
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.base_sequence + header.last_offset_delta if has_sequence else -1,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": bool(header.attributes & TRANSACTIONAL),
        "isControl": header.is_control,
        "deleteHorizonMs": None,
        "position": position,
        "createTime": header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": 2,
        "compresscodec": header.codec,
        "crc": header.crc,
        "isvalid": not fault,
    }


def data_records(header: BatchHeader, data: bytes) -> Iterator[dict[str, object]]:
    """Yield the records of a batch; a document with `error` if they cannot be read or decompressed."""
    try:
        for record in stored_records(header, data):
            yield _data_record(header, record)
    except Unreadable as error:
        yield {"offset": header.base_offset, "error": str(error)}


def _data_record(header: BatchHeader, record: StoredRecord) -> dict[str, Any]:
    document: dict[str, Any] = {
        "offset": record.offset,
        "createTime": record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": header.base_sequence + record.offset - header.base_offset if header.base_sequence >= 0 else -1,
        "headerKeys": [name for name, _ in record.headers],
    }
    if header.is_control and record.key is not None and len(record.key) >= 4:
        kind = int.from_bytes(record.key[2:4], "big")
        if kind in _MARKERS:
            document["endTxnMarker"] = _MARKERS[kind]
            if record.value is not None and len(record.value) >= _MARKER_VALUE.size:
                document["coordinatorEpoch"] = _MARKER_VALUE.unpack_from(record.value)[1]
        else:
            document["controlType"] = f"{_CONTROL_TYPES.get(kind, 'UNKNOWN')}({kind})"
        return document
    return {**document, "key": _text(record.key), "payload": _text(record.value)}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def data_record_line(document: dict[str, Any], *, with_place: bool, with_payload: bool) -> str:
    """Return `| offset: 4 CreateTime: … keySize: 3 valueSize: 5 sequence: -1 headerKeys: [] key: k payload: v`."""
    if "error" in document:
        return f"| {document['error']}"
    words = []
    if with_place:
        words = [
            f"offset: {document['offset']} CreateTime: {document['createTime']} keySize: {document['keySize']}",
            f"valueSize: {document['valueSize']} sequence: {document['sequence']}",
            f"headerKeys: [{','.join(document['headerKeys'])}]",
        ]
    shown = ("endTxnMarker", "coordinatorEpoch", "controlType", *(("key", "payload") if with_payload else ()))
    words += [f"{name}: {document[name]}" for name in shown if document.get(name) is not None]
    return "| " + " ".join(words)
