"""Texts of `configs` as in Kafka's tool, and the parser of --add-config: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kraftlab.config.effective import Source
from kraftlab.config.resources import ResourceType

from ..output import BadArgument, BadInput

if TYPE_CHECKING:
    from kraftlab.client.results import DescribedConfig

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}


class Changes(NamedTuple):
    """Values to set and keys to delete, from the options of --alter."""

    added: Mapping[str, str]
    deleted: Sequence[str]


class EntityKind(NamedTuple):
    """A type of entity. `number` is the type of its config resource, None for a type that has quotas instead: `quota_type`.
    `sources` are the sources that --describe shows without --all.
    """

    plural: str
    number: int | None = None
    quota_type: str = ""
    sources: tuple[int, ...] = ()
    has_default: bool = False

    @property
    def singular(self) -> str:
        return self.plural[:-1]


KINDS: Mapping[str, EntityKind] = {
    kind.plural: kind
    for kind in (
        EntityKind("topics", ResourceType.TOPIC, sources=(Source.DYNAMIC_TOPIC,)),
        EntityKind("brokers", ResourceType.BROKER, sources=(Source.DYNAMIC_BROKER,), has_default=True),
        EntityKind("broker-loggers", ResourceType.BROKER_LOGGER, sources=(Source.DYNAMIC_BROKER_LOGGER,)),
        EntityKind("groups", ResourceType.GROUP, sources=(Source.DYNAMIC_GROUP,)),
        EntityKind("client-metrics", ResourceType.CLIENT_METRICS, sources=(Source.DYNAMIC_CLIENT_METRICS,)),
        EntityKind("users", quota_type="user", has_default=True),
        EntityKind("clients", quota_type="client-id", has_default=True),
        EntityKind("ips", quota_type="ip", has_default=True),
    )
}


class Entity(NamedTuple):
    """The subject of a command. Without a name: the default, or with `is_any` every entity of the type."""

    kind: EntityKind
    name: str | None
    is_any: bool = False

    @property
    def own_sources(self) -> tuple[int, ...]:
        """Return the sources of values that were set for this entity itself."""
        return (Source.DYNAMIC_DEFAULT_BROKER,) if self.name is None else self.kind.sources


def parse_added(text: str) -> dict[str, str]:
    """Parse `k=v,k2=[a,b]` into {"k": "v", "k2": "a,b"}: brackets keep the commas of a list. BadArgument."""
    configs: dict[str, str] = {}
    for item in split_outside_brackets(text):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise BadArgument(
                f'{item!r} is not a config: all configs to be added must be in the format "key=val" or "key=[val,val]".'
            )
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        configs[key.strip()] = value
    return configs


def parse_quotas(configs: Mapping[str, str]) -> dict[str, float]:
    """Return quotas with their values as numbers. BadArgument."""
    quotas: dict[str, float] = {}
    for key, value in configs.items():
        try:
            quotas[key] = float(value)
        except ValueError:
            raise BadArgument(f"Cannot parse quota configuration value for {key}: {value!r} is not a number.") from None
    return quotas


def split_outside_brackets(text: str) -> list[str]:
    """Split a text at the commas outside of [ ]."""
    items: list[str] = []
    depth = 0
    start = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]] if text else []


def check_are_set(changes: Changes, own_keys: Collection[str], entity: Entity) -> None:
    """Refuse keys to delete that are not set, as Kafka's tool does. The node refuses a key that is added as well. BadInput."""
    unset = [key for key in changes.deleted if key not in own_keys and key not in changes.added]
    if unset:
        of = f"the default of {entity.kind.plural}" if entity.name is None else f"{entity.kind.singular} {entity.name}"
        raise BadInput(f"Invalid config(s): {','.join(unset)}: not set for {of}, so there is nothing to delete")


def updated_line(entity: Entity) -> str:
    if entity.name is None:
        return f"Completed updating default config for {entity.kind.plural} in the cluster."
    return f"Completed updating config for {entity.kind.singular} {entity.name}."


def described_lines(entity: Entity, show_all: bool, entries: Iterable[DescribedConfig]) -> list[str]:
    if entity.name is None:
        heading = f"Default configs for {entity.kind.plural} in the cluster are:"
    else:
        heading = f"{'All' if show_all else 'Dynamic'} configs for {entity.kind.singular} {entity.name} are:"
    lines = [heading]
    for entry in sorted(entries, key=lambda entry: entry.name):
        synonyms = ", ".join(
            f"{SOURCES.get(synonym.source, 'UNKNOWN')}:{_shown(synonym.name, synonym.value)}" for synonym in entry.synonyms
        )
        lines.append(f"  {_shown(entry.name, entry.value)} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}")
    return lines


def _shown(key: str, value: str | None) -> str:
    text = "null" if value is None else value
    return f"{key}={text}"


_QUOTA_NAMES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
QuotaParts = Sequence[tuple[str, str | None]]
"""(type, name or None for the default), …"""


def quota_line(parts: QuotaParts, values: Mapping[str, float]) -> str:
    """Return the line of one entity with its quotas, users first as in Kafka's tool."""
    order = list(_QUOTA_NAMES)
    whose = ", ".join(
        f"the default {_QUOTA_NAMES[kind]}" if name is None else f"{_QUOTA_NAMES[kind]} '{name}'"
        for kind, name in sorted(parts, key=lambda part: order.index(part[0]))
    )
    return f"Quota configs for {whose} are {', '.join(f'{key}={value}' for key, value in sorted(values.items()))}"
