"""Source of the value of a configuration key (KIP-226).

A broker's value is its own dynamic one, otherwise the cluster's dynamic default, otherwise that of its server.properties,
otherwise the key's default. A topic inherits from the broker key that is its synonym. Some broker keys come in several units
(`log.retention.ms`, `.minutes`, `.hours`): the first key of such a chain with a value counts, converted. *Synonyms* are all
places with a value, in order of precedence. As in Kafka they begin with the requested name, so a value that comes from
`log.retention.hours` alone shows none.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import dropwhile
from typing import NamedTuple

from .config_key import ConfigKey
from .throttled_replicas import MOVE_RATES
from .topic_configs import BROKER_KEYS, TOPIC_KEYS, broker_key, listener_key


class Source(enum.IntEnum):
    """Kafka's numbers of config sources."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class Synonym(NamedTuple):
    """One place with a value. A sensitive key has the value None."""

    name: str
    value: str | None
    source: Source


class Effective(NamedTuple):
    """Current value, its source, and all its synonyms."""

    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]


class BrokerValues(NamedTuple):
    """Values that one broker gives: its dynamic values, the cluster's dynamic defaults, its server.properties."""

    node: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def value(self, name: str) -> str | None:
        """Current value of a broker key, as it was written; None without one.

        The rate of moves has two names: of two values in one place, the first name counts.
        """
        names = MOVE_RATES if name in MOVE_RATES else (name,)
        for values in (self.node, self.cluster, self.static):
            for member in names:
                value = values.get(member)
                if value is not None:
                    return value
        key = BROKER_KEYS.get(name)
        return None if key is None else key.default

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """All places with a value of a broker key, from that key on."""
        names = [member for member, _ in _chain_of(name)]
        found = [
            _synonym(member, value, source)
            for source, values in (
                (Source.DYNAMIC_BROKER, self.node),
                (Source.DYNAMIC_DEFAULT_BROKER, self.cluster),
                (Source.STATIC_BROKER, self.static),
                (Source.DEFAULT, _DEFAULTS),
            )
            for member in names
            if (value := values.get(member)) is not None
        ]
        return tuple(dropwhile(lambda synonym: synonym.name != name, found))


_HOUR_MS = 3_600_000
_CHAINS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    tuple((name, 1) for name in MOVE_RATES),
)
"""Keys with the same meaning, with the milliseconds of their unit."""
_CHAIN_OF = {name: chain for chain in _CHAINS for name, _ in chain}
_DEFAULTS: dict[str, str] = {key.name: key.default for key in BROKER_KEYS.values() if key.default is not None and not key.hidden}


def _chain_of(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key's chain. The key of a listener is followed by the one of all listeners."""
    of_listener = listener_key(name)
    return _CHAIN_OF.get(name) or ((name, 1), *(((of_listener.key.name, 1),) if of_listener is not None else ()))


def _synonym(name: str, value: str, source: Source) -> Synonym:
    key = broker_key(name)
    return Synonym(name, None if key is None or key.is_sensitive else value, source)


def broker_value(name: str, values: BrokerValues) -> Effective:
    """Value of a broker key. An unknown or sensitive value is not shown."""
    key = broker_key(name)
    synonyms = values.synonyms(name)
    value = values.value(name)
    shown = None if key is None or key.is_sensitive or value is None else key.normal(value)
    return Effective(shown, synonyms[0].source if synonyms else Source.DEFAULT, synonyms)


def inherited(key: ConfigKey, values: BrokerValues) -> str | None:
    """Value of a topic's or group's key without a dynamic value of its own."""
    if key.synonym is None:
        return key.default
    for name, unit in _chain_of(key.synonym):
        value = values.value(name)
        if value is not None:
            return str(int(value) * unit) if unit != 1 else key.normal(value)
    return key.default


def topic_value(name: str, dynamic: str | None, values: BrokerValues) -> Effective:
    """Value of a topic key; `dynamic` is the topic's own value. KeyError for an unknown key."""
    return own_value(TOPIC_KEYS[name], dynamic, values, Source.DYNAMIC_TOPIC)


def topic_text(name: str, dynamic: str | None, values: BrokerValues) -> str:
    """Value of `topic_value` alone, for frequent calls; "" without one."""
    key = TOPIC_KEYS[name]
    return (inherited(key, values) if dynamic is None else key.normal(dynamic)) or ""


def own_value(key: ConfigKey, dynamic: str | None, values: BrokerValues, source: Source) -> Effective:
    """Value of a key that inherits from brokers. `source` is the source of its own dynamic values."""
    synonyms = () if key.synonym is None else values.synonyms(key.synonym)
    if dynamic is None:
        return Effective(inherited(key, values), synonyms[0].source if synonyms else Source.DEFAULT, synonyms)
    value = key.normal(dynamic)
    return Effective(value, source, (Synonym(key.name, value, source), *synonyms))
