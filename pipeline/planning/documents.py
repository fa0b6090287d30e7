"""A cluster as a JSON document: the input of a plan, which every plan carries with it.

`{"version":1,"brokers":[{"id":1,"rack":"a","log_dirs":[{"path":"/d1","total_bytes":…,"usable_bytes":…}]}],
"topics":[{"name":"t","partitions":[{"partition":0,"replicas":[1,2],"leader":1,"size_bytes":…,"log_dirs":["/d1","/d1"]}]}]}`

Only ids, names and replicas are required. A partition has one size: that of its leader, or the largest of its replicas, since a
new replica copies that much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..errors import WrongUse

PARTITION_BYTES_MAX = 1 << 56
"""64 PiB: more than any partition has. Sums of it still fit 64 bits."""
DIRECTORY_BYTES_MAX = (1 << 63) - 1
"""The largest value of DescribeLogDirs. Network file systems report exbibytes of free space."""
NUMBER_MAX = (1 << 31) - 1
EXAMPLE = '{"brokers":[{"id":1}],"topics":[{"name":"t","partitions":[{"partition":0,"replicas":[1]}]}]}'


class BadCluster(WrongUse):
    """An impossible cluster. The text names the fault and its place."""


class LogDir(msgspec.Struct, frozen=True, omit_defaults=True):
    """A log directory. Unknown bytes are -1; `cordoned` takes no new replicas (KIP-1066)."""

    path: str
    id: str = ""
    total_bytes: int = -1
    usable_bytes: int = -1
    online: bool = True
    cordoned: bool = False


class Broker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker. `alive`: registered and not fenced. Without a rack it counts as a rack of its own."""

    id: int
    rack: str | None = None
    alive: bool = True
    log_dirs: tuple[LogDir, ...] = ()


class Partition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition. `replicas` is the list of the metadata, the preferred leader first, including `adding` and `removing` during a
    reassignment. `log_dirs`: path by replica, null if unknown. `size_bytes` null: unknown.
    """

    partition: int
    replicas: tuple[int, ...]
    leader: int = -1
    size_bytes: int | None = None
    log_dirs: tuple[str | None, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def settled(self) -> tuple[int, ...]:
        """The replicas after the end of a running reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class Topic(msgspec.Struct, frozen=True):
    name: str
    partitions: tuple[Partition, ...]


class ClusterDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Brokers by id, topics by name, partitions by number. `as_of_offset` is the metadata offset, -1 if unknown."""

    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    version: int = 1
    cluster_id: str = ""
    as_of_offset: int = -1


def read_cluster(path: str) -> ClusterDocument:
    """Return the validated document of a file. BadCluster."""
    return parse_cluster(read_bytes(path), path)


def parse_cluster(data: bytes, name: str) -> ClusterDocument:
    """Return the validated document; errors call it `name`. BadCluster."""
    try:
        document = decode_json(data, ClusterDocument)
    except BadJson as error:
        raise BadCluster(f"{name} is not a description of a cluster: {error}; an example: {EXAMPLE}") from None
    if document.version != 1:
        raise BadCluster(f"{name} has version {document.version}; this release knows version 1")
    return validated(document)


def encode_cluster(document: ClusterDocument) -> bytes:
    return msgspec.json.encode(document)


def validated(document: ClusterDocument) -> ClusterDocument:
    """Validate and sort the document, and add the brokers that only replicas name, which are down. BadCluster."""
    _refuse_twice("broker", (broker.id for broker in document.brokers))
    _refuse_twice("topic", (topic.name for topic in document.topics))
    for broker in document.brokers:
        if not 0 <= broker.id <= NUMBER_MAX:
            raise BadCluster(f"broker id {broker.id} is out of range; ids are from 0 to {NUMBER_MAX}")
        _refuse_twice(f"log directory of broker {broker.id}", (directory.path for directory in broker.log_dirs))
        for directory in broker.log_dirs:
            if not directory.path.startswith("/"):
                raise BadCluster(f"log directory {directory.path!r} of broker {broker.id} is not an absolute path")
            if max(directory.total_bytes, directory.usable_bytes) > DIRECTORY_BYTES_MAX:
                raise BadCluster(
                    f"log directory {directory.path} of broker {broker.id} has more than {DIRECTORY_BYTES_MAX} bytes, the maximum"
                )
    named: set[int] = set()
    for topic in document.topics:
        _refuse_twice(f"partition of topic {topic.name}", (entry.partition for entry in topic.partitions))
        for entry in topic.partitions:
            _judge(topic.name, entry)
            named.update(entry.replicas)
    if not document.brokers:
        raise BadCluster("the cluster has no brokers; nothing can be planned")
    if not named:
        raise BadCluster("the cluster has no partitions; nothing can be planned")
    missing = named.difference(broker.id for broker in document.brokers)
    brokers = sorted((*document.brokers, *(Broker(id, alive=False) for id in missing)), key=lambda broker: broker.id)
    topics = sorted(
        (Topic(topic.name, tuple(sorted(topic.partitions, key=lambda entry: entry.partition))) for topic in document.topics),
        key=lambda topic: topic.name,
    )
    return msgspec.structs.replace(document, brokers=tuple(brokers), topics=tuple(topics))


def _judge(topic: str, entry: Partition) -> None:
    name = f"{topic}-{entry.partition}"
    if not entry.replicas or not entry.settled:
        raise BadCluster(f"{name} has no replicas; every partition has at least one")
    if len(set(entry.replicas)) < len(entry.replicas):
        raise BadCluster(f"{name} has a broker twice in its replicas {list(entry.replicas)}; remove one of the two")
    if entry.partition < 0 or min(entry.replicas) < 0:
        raise BadCluster(f"{name} has a negative number (replicas {list(entry.replicas)}); ids count from 0")
    if max(entry.partition, *entry.replicas) > NUMBER_MAX:
        raise BadCluster(f"{name} has too large a number (replicas {list(entry.replicas)}); ids end at {NUMBER_MAX}")
    if entry.size_bytes is not None and not 0 <= entry.size_bytes <= PARTITION_BYTES_MAX:
        raise BadCluster(f"{name} has a size of {entry.size_bytes} bytes; leave size_bytes out if it is unknown")
    if entry.log_dirs and len(entry.log_dirs) != len(entry.replicas):
        raise BadCluster(
            f"{name} has {len(entry.replicas)} replicas and {len(entry.log_dirs)} log_dirs; give one for each replica"
        )


def _refuse_twice(what: str, names: Iterable[int | str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise BadCluster(f"{what} {name} occurs {count} times; it must occur once")


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadCluster(f"cannot read {path}: {error.strerror}; check the path and its permissions") from None
