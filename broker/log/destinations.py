"""Remembered destinations: log directories that AlterReplicaLogDirs named for replicas that are not on this broker yet (KIP-113).

They survive a restart in one small file in the metadata directory, since a broker never runs without that one:
`version 0`, a count, and lines of `topic partition directory-id topic-id`; the topic id is `-` while no topic has the name.
`save` replaces the file before the request is answered. A destination is forgotten when the replica is created, when it is taken
back, and when its topic is deleted. The file follows later, since a stale line does no harm: a replica that exists forgets its
line at the next start, and a line whose topic was deleted is known by its topic id.

At most `REMEMBERED_MAX` are kept, the newest: replicas that never come fill neither memory nor disk. A file that cannot be read
counts as empty, with a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from kraftlab.common.uuids import Uuid, from_text, to_text

from .errors import CorruptFile
from .files import TABLE_MAX_BYTES, read_small, write_durably

FILE_NAME = "remembered-destinations"
REMEMBERED_MAX = 100_000
_NO_TOPIC_ID = "-"

logger = logging.getLogger(__name__)


class Destination(msgspec.Struct, frozen=True):
    """`topic_id` None: no topic had the name when the destination was remembered."""

    directory_id: Uuid
    topic_id: Uuid | None


class Destinations:
    """All remembered destinations of a broker. Methods may be called from any thread; only `open` and `save` block."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._by_replica: dict[tuple[str, int], Destination] = {}
        self._is_saved = True
        self._lock = threading.Lock()
        self._save_lock = threading.Lock()

    @classmethod
    def open(cls, directory: Path) -> Destinations:
        """Read the file in `directory`, which need not be there."""
        destinations = cls(directory / FILE_NAME)
        try:
            destinations._by_replica = _parse(read_small(directory / FILE_NAME, TABLE_MAX_BYTES).decode())
        except FileNotFoundError:
            pass
        except (OSError, ValueError, CorruptFile) as error:
            logger.warning("remembered destinations of replicas are lost: %s cannot be read: %s", directory / FILE_NAME, error)
        return destinations

    def remember(self, topic: str, partition: int, directory_id: Uuid, topic_id: Uuid | None = None) -> None:
        with self._lock:
            self._by_replica.pop((topic, partition), None)
            self._by_replica[topic, partition] = Destination(directory_id, topic_id)
            if len(self._by_replica) > REMEMBERED_MAX:
                del self._by_replica[next(iter(self._by_replica))]
            self._is_saved = False

    def forget(self, topic: str, partition: int) -> None:
        with self._lock:
            if self._by_replica.pop((topic, partition), None) is not None:
                self._is_saved = False

    def of(self, topic: str, partition: int, topic_id: Uuid) -> Uuid | None:
        """Return the directory to create the replica in. One that was remembered for a deleted topic of that name is ignored."""
        found = self._by_replica.get((topic, partition))
        return None if found is None or found.topic_id not in (None, topic_id) else found.directory_id

    def topics_changed(self, id_of: Callable[[str], Uuid | None]) -> None:
        """Note which topics there are; forget the destinations of those that are gone. `id_of` a topic is None without it."""
        with self._lock:
            for (topic, partition), destination in list(self._by_replica.items()):
                topic_id = id_of(topic)
                if destination.topic_id == topic_id:
                    continue
                self._is_saved = False
                if destination.topic_id is None:
                    self._by_replica[topic, partition] = Destination(destination.directory_id, topic_id)
                else:
                    del self._by_replica[topic, partition]

    @property
    def is_saved(self) -> bool:
        return self._is_saved

    def save(self) -> None:
        """Write the file if it differs. If that fails, a warning is logged, and the next call tries again."""
        with self._save_lock:
            with self._lock:
                if self._is_saved or self._path is None:
                    return
                text = _format(self._by_replica)
                self._is_saved = True
            try:
                write_durably(self._path, text)
            except OSError as error:
                self._is_saved = False
                logger.warning("remembered destinations of replicas would not survive a crash now: %s", error)

    def __len__(self) -> int:
        return len(self._by_replica)


def _format(destinations: dict[tuple[str, int], Destination]) -> str:
    lines = ["0", str(len(destinations))]
    for (topic, partition), destination in destinations.items():
        topic_id = _NO_TOPIC_ID if destination.topic_id is None else to_text(destination.topic_id)
        lines.append(f"{topic} {partition} {to_text(destination.directory_id)} {topic_id}")
    return "\n".join(lines) + "\n"


def _parse(text: str) -> dict[tuple[str, int], Destination]:
    """ValueError if a line is damaged or missing."""
    version, count, *lines = text.splitlines()
    found: dict[tuple[str, int], Destination] = {}
    for line in lines:
        topic, partition, directory_id, topic_id = line.split(" ")
        known = None if topic_id == _NO_TOPIC_ID else from_text(topic_id)
        found[topic, int(partition)] = Destination(from_text(directory_id), known)
    if version != "0" or int(count) != len(found):
        raise ValueError(f"version {version} with {len(found)} of {count} lines")
    return found
