"""UUIDs: 16 bytes on disk and in frames, Kafka's 22 characters of base64url for people. Ids below 100 are reserved (KIP-858)."""

from __future__ import annotations

import base64
import uuid
from typing import Annotated

import msgspec

UUID_BYTES = 16
Uuid = Annotated[bytes, msgspec.Meta(min_length=UUID_BYTES, max_length=UUID_BYTES)]
"""Always 16 bytes; decoding a record or a peer's message refuses any other length."""

ZERO: Uuid = bytes(16)
MIGRATING: Uuid = bytes(16)
"""The directory is unknown, but the replica is assumed to have one."""
UNASSIGNED: Uuid = (1).to_bytes(16, "big")
"""The replica has no directory yet."""
LOST: Uuid = (2).to_bytes(16, "big")
"""The replica is assumed to be in an offline directory."""
RESERVED_BELOW = 100


def random_uuid() -> Uuid:
    """Return a random id with a text that does not begin with a dash, so that it can be a command's argument."""
    while True:
        value = uuid.uuid4().bytes
        if int.from_bytes(value, "big") >= RESERVED_BELOW and not to_text(value).startswith("-"):
            return value


def is_reserved(value: Uuid) -> bool:
    return int.from_bytes(value, "big") < RESERVED_BELOW


def to_text(value: Uuid) -> str:
    """Kafka's form: 22 characters, base64url without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def from_text(text: str) -> Uuid:
    """The inverse of `to_text`. ValueError names the text if it is not an id."""
    try:
        value = base64.urlsafe_b64decode(text + "==")
    except ValueError as error:
        raise ValueError(f"{text!r} is not an id of 22 base64url characters") from error
    if len(value) != 16 or to_text(value) != text:
        raise ValueError(f"{text!r} is not an id of 22 base64url characters")
    return value
