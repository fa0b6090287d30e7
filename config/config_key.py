"""One configuration key: its type, its valid values, and their normal form (KIP-226).

A key checks a value (`fault`, with Kafka's text) and writes a valid one in its normal form (`normal`): numbers without blanks
and leading zeros, lists without blanks, booleans in lower case. An item that a list names twice counts once, an empty one is
refused (KIP-1161); lists of throttled replicas may have both.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

import msgspec

from .documentation import DOCUMENTATION


class ConfigType(enum.Enum):
    """Kafka's types of a configuration value."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"

    @property
    def number(self) -> int:
        """Number in DescribeConfigs; 0 is an unknown type."""
        return _TYPE_NUMBERS[self]


_TYPE_NUMBERS = {kind: number for number, kind in enumerate(ConfigType, start=1)}
_INTEGER_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_HOST_LIMIT = re.compile(r".+:[0-9]{1,9}")
_THROTTLED_REPLICAS = re.compile(r"([0-9]+:[0-9]+)?")


class ConfigKey(msgspec.Struct, frozen=True):
    """One key. `minimum`, `maximum` bound numbers; `choices` bounds a string, or each item of a list; `synonym` is the name in
    server.properties of a topic's or group's key. `replica_list`, `host_limits`: the value has that form.

    Broker keys: `dynamic`: a broker takes a new value without a restart. `per_broker`: there is no default for the whole
    cluster. `needs_listener`: the key can change for one listener only (`listener.name.NAME.KEY`). `hidden`: the key is
    described only if it is set.
    """

    name: str
    type: ConfigType
    default: str | None
    synonym: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = True
    replica_list: bool = False
    host_limits: bool = False
    per_broker: bool = False
    needs_listener: bool = False
    hidden: bool = False

    @property
    def documentation(self) -> str | None:
        """Sentence about the key's effect; None for a key that nothing acts on."""
        return DOCUMENTATION.get(self.name)

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    @property
    def is_sensitive(self) -> bool:
        """True if its value is never shown."""
        return self.type is ConfigType.PASSWORD

    def fault(self, value: str) -> str | None:
        """Reason why `value` is not valid, with Kafka's text; None if it is."""
        if self.is_list and not self.replica_list and "" in split_list(value):
            return f"Configuration '{self.name}' values must not be empty."
        reason = self._fault_of_type(value)
        return None if reason is None else f"Invalid value {self._shown(value)} for configuration {self.name}: {reason}"

    def _shown(self, value: str) -> str:
        """Part of an invalid value that a refusal quotes: of a list of choices the first invalid item."""
        if self.is_sensitive:
            return "[hidden]"
        if self.replica_list:
            return "[" + ", ".join(split_list(value)) + "]"
        if self.is_list:
            return next((item for item in split_list(value) if item not in self.choices), value)
        return value

    def normal(self, value: str) -> str:
        """Normal form of a valid value."""
        match self.type:
            case ConfigType.BOOLEAN:
                return value.strip().lower()
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return str(int(value))
            case ConfigType.DOUBLE:
                return str(float(value))
            case ConfigType.LIST:
                items = split_list(value)
                return ",".join(items if self.replica_list else dict.fromkeys(items))
            case _:
                return value

    def _fault_of_type(self, value: str) -> str | None:
        match self.type:
            case ConfigType.BOOLEAN:
                return None if value.strip().lower() in ("true", "false") else "Expected value to be either true or false"
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                text = value.strip()
                limit = 1 << _INTEGER_BITS[self.type]
                if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
                    return f"Not a number of type {self.type.value}"
                return self._fault_of_range(int(text))
            case ConfigType.DOUBLE:
                if not value.isascii() or "_" in value:  # Python alone takes these as numbers
                    return "Not a number of type DOUBLE"
                try:
                    return self._fault_of_range(float(value))
                except ValueError:
                    return "Not a number of type DOUBLE"
            case ConfigType.STRING:
                return self._fault_of_hosts(split_list(value)) if self.host_limits else self._fault_of_choice((value,))
            case ConfigType.LIST:
                items = split_list(value)
                return self._fault_of_replicas(items) if self.replica_list else self._fault_of_choice(items)
            case _:
                return None

    def _fault_of_range(self, number: float) -> str | None:
        if self.minimum is not None and not number >= self.minimum:
            return f"Value must be at least {_number(self.minimum)}"
        if self.maximum is not None and not number <= self.maximum:
            return f"Value must be no more than {_number(self.maximum)}"
        return None

    def _fault_of_choice(self, items: Iterable[str]) -> str | None:
        if self.choices and any(item not in self.choices for item in items):
            return "String must be one of: " + ", ".join(self.choices)
        return None

    def _fault_of_hosts(self, items: tuple[str, ...]) -> str | None:
        if all(_HOST_LIMIT.fullmatch(item) for item in items):
            return None
        return "Expected a number per address in the following format: [address]:[number],[address]:[number],..."

    def _fault_of_replicas(self, items: tuple[str, ...]) -> str | None:
        if items in ((), ("*",)) or all(_THROTTLED_REPLICAS.fullmatch(item) for item in items):
            return None
        return (
            f"{self.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def split_list(value: str) -> tuple[str, ...]:
    """Items of a LIST value: separated by commas, without surrounding blanks; "" is the empty list."""
    return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
