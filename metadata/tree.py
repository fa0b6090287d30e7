"""An image as a tree of directories and values: for the shell, for `metadata at`, and for comparing two images.

The tree follows the image's own structs and maps, so it needs no change for a new part of the image. Two tables have the
exceptions. `DERIVED` lists fields that follow from others (indexes), which are left out. `_PLACED` lists fields that are
arranged for people: topics by name and by id, credentials by mechanism, configs and quotas by their subject. Directories are
built when they are entered, and each remembers the part of the image that it shows (`source`), so a comparison can skip parts
that two images share.

Secret values (credentials, answers to requests, secret configs) are `Hidden`: they compare like the value and print as a
placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import immutables
import msgspec

from kraftlab.common.uuids import Uuid, to_text

from .acls import AclsImage
from .image import MetadataImage, OpenTransaction, TopicImage, TopicsImage
from .moves import MovesImage
from .record_text import HIDDEN, IsSecret, camel_case, record_document
from .requests import AnsweredRequest, RequestingClient
from .scram import ScramMechanism

DEFAULT_NAME = "<default>"

ALIASES = frozenset({("topics", "byId")})
"""Paths that repeat the content of another path; comparisons leave them out."""


class Hidden:
    """A value that is compared, but not shown."""

    __slots__ = ("_value", "text")

    def __init__(self, value: object, text: str = HIDDEN) -> None:
        self._value = value
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return self.text


Leaf = str | int | float | bool | None | list[Any] | Hidden
"""Lists hold leaves."""


class Directory:
    """Named nodes, in the order for people. `source`: the part of the image that it shows, None if it is composed of several."""

    __slots__ = ("_child", "_names", "_order", "source")

    def __init__(self, names: Callable[[], Iterable[str]], child: Callable[[str], Node], source: object = None) -> None:
        self._order = names
        self._child = child
        self._names: dict[str, None] | None = None
        self.source = source

    def names(self) -> list[str]:
        return list(self._known())

    def get(self, name: str) -> Node:
        """KeyError if there is no node of that name."""
        if name not in self._known():
            raise KeyError(name)
        return self._child(name)

    def __contains__(self, name: object) -> bool:
        return name in self._known()

    def items(self) -> Iterable[tuple[str, Node]]:
        return ((name, self._child(name)) for name in self._known())

    def _known(self) -> dict[str, None]:
        if self._names is None:
            self._names = dict.fromkeys(self._order())
        return self._names


Node = Directory | Leaf


def image_tree(image: MetadataImage, is_secret: IsSecret) -> Directory:
    """The whole image, `/image` in the shell."""
    return _Trees(image, is_secret).root()


def plain_document(node: Node) -> object:
    """A node as JSON: directories are objects, hidden values their placeholder."""
    if isinstance(node, Directory):
        return {name: plain_document(child) for name, child in node.items()}
    if isinstance(node, list):
        return [plain_document(item) for item in node]
    return node.text if isinstance(node, Hidden) else node


def path_name(text: str) -> str:
    """A key as the name of a directory: without slashes, and not empty."""
    return text.replace("%", "%25").replace("/", "%2F") or DEFAULT_NAME


_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


def resource_name(resource: tuple[int, str]) -> str:
    """`TOPIC:orders`, `BROKER:0`; `BROKER` alone is the default of all brokers."""
    kind, name = resource
    kind_name = _RESOURCES.get(kind, f"RESOURCE-{kind}")
    return f"{kind_name}:{path_name(name)}" if name else kind_name


def _entity_name(entity: tuple[tuple[str, str | None], ...]) -> str:
    """`client-id=c,user=u`. A comma in a name is written `%2C`, and a name that equals the default's `%3Cdefault>`."""

    def part(name: str | None) -> str:
        if name is None:
            return DEFAULT_NAME
        return "%3C" + name[1:] if name == DEFAULT_NAME else path_name(name).replace(",", "%2C")

    return ",".join(f"{kind}={part(name)}" for kind, name in entity)


def _key_name(key: Any) -> str:
    if isinstance(key, bytes):
        return to_text(key)
    if isinstance(key, tuple):
        return "-".join(_key_name(part) for part in key)
    return path_name(str(key))


def _order(key: Any) -> Any:
    """A sort key: numbers by size, all other keys by their text."""
    return (0, key, "") if isinstance(key, int) else (1, 0, _key_name(key))


class _Trees:
    """Makes the nodes of one image."""

    def __init__(self, image: MetadataImage, is_secret: IsSecret) -> None:
        self.image = image
        self.is_secret = is_secret

    def root(self) -> Directory:
        return self.struct(self.image)

    def struct(self, value: msgspec.Struct) -> Directory:
        """Fields of a struct, by the names that people use."""
        parts: dict[str, tuple[str, Any]] = {}
        for field in value.__struct_fields__:
            if (type(value), field) not in DERIVED:
                parts[_NAMES.get((type(value), field), camel_case(field))] = (field, getattr(value, field))

        def child(name: str) -> Node:
            field, part = parts[name]
            placed = _PLACED.get((type(value), field))
            return self.node(part) if placed is None else placed(self, part)

        if isinstance(value, TopicsImage):
            return self.topics(value)
        if isinstance(value, TopicImage):
            return self.topic(value)
        return Directory(lambda: parts, child, value)

    def node(self, value: Any) -> Node:
        if isinstance(value, immutables.Map):
            return self.map(value, _key_name)
        if isinstance(value, msgspec.Struct):
            return repr(value) if value.__struct_config__.array_like and hasattr(value, "port") else self.struct(value)
        if isinstance(value, bytes):
            return to_text(value) if len(value) == 16 else Hidden(value, f"[{len(value)} bytes]")
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = {camel_case(name): item for name, item in zip(value._fields, value, strict=True)}
            return Directory(lambda: fields, lambda name: self.node(fields[name]), value)
        if isinstance(value, tuple):
            return self.sequence(value)
        leaf: Leaf = value
        return leaf

    def map(
        self, values: Mapping[Any, Any], name_of: Callable[[Any], str], make: Callable[[Any], Node] | None = None
    ) -> Directory:
        """Values of a map by the names of their keys."""
        keys: dict[str, Any] = {}

        def names() -> Iterable[str]:
            keys.update((name_of(key), key) for key in sorted(values, key=_order))
            return keys

        return Directory(names, lambda name: (make or self.node)(values[keys[name]]), values)

    def sequence(self, values: tuple[Any, ...]) -> Node:
        """A list of leaves; otherwise a directory by number."""
        nodes = [self.node(item) for item in values]
        if not any(isinstance(node, Directory) for node in nodes):
            return nodes
        return Directory(lambda: map(str, range(len(nodes))), lambda name: nodes[int(name)], values)

    def answered(self, answered: tuple[AnsweredRequest, ...]) -> Directory:
        """A client's answers by the sequence of their requests."""
        return self.map({answer.sequence: answer for answer in answered}, _key_name)

    def topics(self, topics: TopicsImage) -> Directory:
        def by_name() -> Directory:
            return Directory(
                lambda: sorted(map(path_name, topics.by_name)),
                lambda name: self.struct(topics.by_id[topics.by_name[_original(name)]]),
                topics.by_id,
            )

        made: dict[str, Callable[[], Directory]] = {"byName": by_name, "byId": lambda: self.map(topics.by_id, _key_name)}
        return Directory(lambda: made, lambda name: made[name](), topics)

    def topic(self, topic: TopicImage) -> Directory:
        """Name, id, and partitions by number."""
        facts: dict[str, Leaf] = {"name": topic.name, "id": to_text(topic.topic_id)}
        partitions = topic.partitions
        return Directory(
            lambda: [*facts, *map(str, sorted(partitions))],
            lambda name: facts[name] if name in facts else self.node(partitions[int(name)]),
            topic,
        )

    def by_topic(self, values: immutables.Map[Uuid, Any]) -> Directory:
        """Values by the names of their topics."""
        topics = self.image.topics.by_id
        return self.map(values, lambda topic_id: path_name(topics[topic_id].name))

    def configs(self, configs: immutables.Map[tuple[int, str], Any]) -> Directory:
        resources: dict[str, tuple[int, str]] = {}

        def names() -> Iterable[str]:
            resources.update((resource_name(resource), resource) for resource in sorted(configs))
            return resources

        def child(name: str) -> Node:
            resource = resources[name]
            values = configs[resource]
            keys = {path_name(key): key for key in sorted(values)}

            def value(name: str) -> Node:
                key = keys[name]
                return Hidden(values[key]) if self.is_secret(resource[0], key) else values[key]

            return Directory(lambda: keys, value, values)

        return Directory(names, child, configs)

    def scram(self, credentials: immutables.Map[tuple[str, int], Any]) -> Directory:
        mechanisms = {mechanism.name.replace("_", "-"): int(mechanism) for mechanism in ScramMechanism}
        mechanisms |= {f"MECHANISM-{number}": number for _, number in credentials if number not in mechanisms.values()}

        def users(mechanism: int) -> Directory:
            found = {user: credential for (user, number), credential in credentials.items() if number == mechanism}
            return self.map(found, path_name, credential_of)

        def credential_of(credential: Any) -> Node:
            values = msgspec.structs.asdict(credential)
            shown = {camel_case(name): Hidden(value) if isinstance(value, bytes) else value for name, value in values.items()}
            return Directory(lambda: shown, lambda name: shown[name], credential)

        return Directory(lambda: mechanisms, lambda name: users(mechanisms[name]), credentials)

    def transaction(self, transaction: OpenTransaction | None) -> Node:
        if transaction is None:
            return None
        held = {str(offset): record for chunk in transaction.held for offset, record in chunk}
        shown = {
            "beginOffset": transaction.begin_offset,
            "name": transaction.name,
            "held": Directory(lambda: held, lambda name: self.held(held[name])),
        }
        return Directory(lambda: shown, lambda name: shown[name], transaction)

    def producer_ids(self, next_producer_id: int) -> Directory:
        return Directory(lambda: ["nextProducerId"], lambda name: next_producer_id)

    def held(self, record: Any) -> Hidden:
        return Hidden(record, msgspec.json.encode(record_document(record, self.is_secret)).decode())


def _original(name: str) -> str:
    return "" if name == DEFAULT_NAME else name.replace("%2F", "/").replace("%25", "%")


DERIVED: frozenset[tuple[type, str]] = frozenset(
    {
        (AclsImage, "ids"),
        (AclsImage, "permissions"),
        (AclsImage, "patterns"),
        (AclsImage, "prefix_lengths"),
        (TopicsImage, "by_name"),
        (TopicsImage, "reassigning"),
    }
)
"""Fields that follow from others."""

_NAMES: dict[tuple[type, str], str] = {
    (MetadataImage, "quotas"): "clientQuotas",
    (MetadataImage, "next_producer_id"): "producerIds",
    (AclsImage, "by_id"): "byId",
}
"""Fields that people know by another name."""

_PLACED: dict[tuple[type, str], Callable[[_Trees, Any], Node]] = {
    (MetadataImage, "configs"): _Trees.configs,
    (MetadataImage, "quotas"): lambda trees, quotas: trees.map(quotas, _entity_name),
    (MetadataImage, "scram"): _Trees.scram,
    (MetadataImage, "transaction"): _Trees.transaction,
    (MetadataImage, "next_producer_id"): _Trees.producer_ids,
    (RequestingClient, "answered"): _Trees.answered,
    (MovesImage, "running"): _Trees.by_topic,
    (MovesImage, "queued"): _Trees.by_topic,
}
"""Fields that are arranged for people."""
