"""Names of replicas' directories inside a log directory, as Kafka has them.

=========================================  ==========================================================
`<topic>-<partition>`                      current replica
`<topic>-<partition>.<32 hex>-future`      being built by a move between log directories
`<topic>-<partition>.<32 hex>-delete`      its files wait to be removed
`<topic>-<partition>.<32 hex>-stray`       not in the metadata of this broker; kept until a person removes it
=========================================  ==========================================================

The hex id lets several directories of one partition lie side by side. A file name has at most 255 bytes and a topic name at most
249, so the last three may not fit. Kafka truncates `-delete` and `-stray` names and refuses to move such topics. Here all three
are truncated. A directory of a topic with such a long name holds the whole name in a file `topic-name`, written when the
directory is created; a scan of a log directory prefers that file. So topics of any legal length can be moved. A name that is not
truncated is exactly Kafka's.
"""

from __future__ import annotations

import enum
import uuid
from typing import NamedTuple

from .errors import TopicNameTooLong

NAME_MAX_BYTES = 255
UNIQUE_CHARACTERS = 32
PARTITION_DIGITS_MAX = 10
CREATING_PREFIX = ".creating-"
"""A directory in the making; removed if it is found at start."""


class DirKind(enum.Enum):
    """Purpose of a replica's directory; the value is the name's suffix."""

    CURRENT = ""
    FUTURE = "-future"
    DELETE = "-delete"
    STRAY = "-stray"


TRANSIENT = (DirKind.FUTURE, DirKind.DELETE, DirKind.STRAY)


class DirName(NamedTuple):
    """A parsed name. `topic` may be truncated for kinds other than CURRENT."""

    topic: str
    partition: int
    kind: DirKind


def parse(name: str) -> DirName | None:
    """Parse the name of a replica's directory; None for other names."""
    kind = next((kind for kind in TRANSIENT if name.endswith(kind.value)), DirKind.CURRENT)
    if kind is not DirKind.CURRENT:
        name, dot, unique = name.removesuffix(kind.value).rpartition(".")
        if not dot or not unique:
            return None
    topic, _, number = name.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit()) or any(character.isspace() for character in topic):
        return None
    return DirName(topic, int(number), kind)


def current_name(topic: str, partition: int) -> str:
    """The plain name. TopicNameTooLong if it is over 255 bytes."""
    name = f"{topic}-{partition}"
    if len(name.encode()) > NAME_MAX_BYTES:
        raise TopicNameTooLong(f"the directory name of {name} has {len(name.encode())} bytes, {NAME_MAX_BYTES} are possible")
    return name


def transient_name(topic: str, partition: int, kind: DirKind) -> str:
    """Make a fresh name of `kind`; the topic is truncated if it does not fit."""
    ending = f"-{partition}.{uuid.uuid4().hex}{kind.value}"
    return topic[: NAME_MAX_BYTES - len(ending)] + ending


def keeps_name_inside(topic: str) -> bool:
    """Return True if a directory of the topic holds the whole name in a file, since its own name may be truncated."""
    longest_ending = 1 + PARTITION_DIGITS_MAX + 1 + UNIQUE_CHARACTERS + max(len(kind.value) for kind in TRANSIENT)
    return len(topic) + longest_ending > NAME_MAX_BYTES
