"""Secrets of a metadata log, hidden in what people are shown: keys and salts of SCRAM users, and values of secret configs."""

from __future__ import annotations

import msgspec

from kraftlab.config.secrets import looks_secret
from kraftlab.metadata.record_text import HIDDEN
from kraftlab.metadata.records import Config, UserScramCredential

from .batches import AnyRecord, Record, UndecodedRecord

CREDENTIAL, CONFIG = UserScramCredential.TYPE, Config.TYPE
BYTES_OF_CREDENTIAL = ("salt", "storedKey", "serverKey")
HEAD_BYTES = 3
"""Bytes of a record before its fields, in both formats: enough to know its type and version."""
_STARTS = (b"\x01\x0b", b"\x98\x0b")
"""Beginnings of a credential in Kafka's format and in ours."""


def hide_fields(name: str, fields: dict[str, object]) -> dict[str, object]:
    """Return a record's fields for people, with secrets hidden. `name` is that of its type."""
    if name == "USER_SCRAM_CREDENTIAL_RECORD":
        return {key: HIDDEN if key in BYTES_OF_CREDENTIAL else value for key, value in fields.items()}
    if name == "CONFIG_RECORD" and fields.get("value") is not None and looks_secret(str(fields["name"])):
        return {**fields, "value": HIDDEN}
    return fields


def hide_record(record: AnyRecord) -> AnyRecord:
    """Return a record for people, with secrets hidden."""
    if isinstance(record, Record):
        return msgspec.structs.replace(record, data=hide_fields(record.type, record.data))
    if isinstance(record, UndecodedRecord) and (record.type_number in (CREDENTIAL, CONFIG) or may_hold_credential(record.raw)):
        return msgspec.structs.replace(record, raw=record.raw[:HEAD_BYTES])
    return record


def may_hold_credential(data: bytes) -> bool:
    return any(start in data for start in _STARTS)
