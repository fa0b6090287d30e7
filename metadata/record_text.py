"""Records as JSON, in the shape of Kafka's own decoder: `{"type", "version", "data"}`.

Types are named TOPIC_RECORD and fields are in camel case, as in Kafka. Ids are 22 characters of base64url, other bytes base64.
Fields that Kafka writes only on demand (tagged ones, and unchanged fields of a change record) are left out while they have
their default. Credentials, answers to requests and values of secret configs are never shown. The caller says which configs are
secret, since the metadata does not know the meaning of keys.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.common.uuids import to_text

from .records import Config, Listener, Record, RequestOutcome, UserScramCredential

HIDDEN = "[hidden]"

IsSecret = Callable[[int, str], bool]
"""(resource type, config name) → True if the value must not be shown."""

_TAGGED = frozenset(
    {
        "leader_recovery_state",
        "eligible_leader_replicas",
        "last_known_elr",
        "original_replicas",
        "target_replicas",
        "registration_offset",
        "plan_id",
        "throttle",
        "throttle_until_ms",
        "throttle_for_ms",
        "end_offset",
        "cordoned_log_dirs",
    }
)
_NAMES = {"listeners": "endPoints", "acl_id": "id"}
_ENTITY = ("entityType", "entityName")
_FEATURE = ("name", "minSupportedVersion", "maxSupportedVersion")


def record_type_name(record: type[Record]) -> str:
    """`Topic` is TOPIC_RECORD, `NoOp` is NO_OP_RECORD."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", record.__name__).upper() + "_RECORD"


def camel_case(name: str) -> str:
    """`topic_id` is topicId."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def record_document(record: Record, is_secret: IsSecret) -> dict[str, object]:
    """`{"type", "version", "data"}` of any record, secrets hidden."""
    data: dict[str, Any] = {}
    type_name, fields = _shape(type(record))
    for field, name, default, is_tagged in fields:
        value = getattr(record, field)
        if value == default and (value is None or is_tagged):
            continue
        data[name] = _shown(record, field, value, is_secret)
    return {"type": type_name, "version": record.version, "data": data}


@functools.cache
def _shape(record: type[Record]) -> tuple[str, tuple[tuple[str, str, Any, bool], ...]]:
    """Name of the type, and for each field: its name here, its name in JSON, its default, and True if it is tagged."""
    fields = (field for field in msgspec.structs.fields(record) if field.name != "version")
    return record_type_name(record), tuple(
        (field.name, _NAMES.get(field.name, camel_case(field.name)), field.default, field.name in _TAGGED) for field in fields
    )


def _shown(record: Record, field: str, value: Any, is_secret: IsSecret) -> Any:
    if isinstance(record, UserScramCredential) and isinstance(value, bytes):
        return HIDDEN
    if isinstance(record, Config) and field == "value" and value is not None:
        return HIDDEN if is_secret(record.resource_type, record.name) else value
    if isinstance(record, RequestOutcome) and field == "answer":
        return f"[{len(value)} bytes]"
    if field == "entity":
        return [dict(zip(_ENTITY, part, strict=True)) for part in value]
    if field == "features":
        return [dict(zip(_FEATURE, part, strict=True)) for part in value]
    return plain(value)


def plain(value: object) -> object:
    """A value as JSON."""
    if isinstance(value, bytes):
        return to_text(value) if len(value) == 16 else base64.b64encode(value).decode()
    if isinstance(value, Listener):
        return {"name": value.name, "host": value.host, "port": value.port, "securityProtocol": 0}
    if isinstance(value, msgspec.Struct):
        return {camel_case(field): plain(getattr(value, field)) for field in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
