"""What `configs` says, and how it reads --add-config: pure functions, texts as Kafka's tool has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}


class ConfigUsageError(ValueError):
    """Arguments that make no config; the text is for the person who wrote them."""


def parse_added(text: str) -> dict[str, str]:
    """`k=v,k2=[a,b]` → {"k": "v", "k2": "a,b"}: brackets keep the commas of a list. ConfigUsageError."""
    configs: dict[str, str] = {}
    for item in split_outside_brackets(text):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigUsageError(
                f'{item!r} is no config: all configs to be added must be in the format "key=val" or "key=[val,val]".'
            )
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        configs[key.strip()] = value
    return configs


def split_outside_brackets(text: str) -> list[str]:
    """Splits at commas that stand outside of [ ]."""
    items: list[str] = []
    depth = 0
    start = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]] if text else []


def updated_line(kind: str, name: str | None) -> str:
    if name is None:
        return f"Completed updating default config for {kind}s in the cluster."
    return f"Completed updating config for {kind} {name}."


class ConfigView(NamedTuple):
    """One config as described."""

    key: str
    value: str | None
    source: int
    sensitive: bool


def described_lines(kind: str, name: str | None, show_all: bool, entries: Iterable[ConfigView]) -> list[str]:
    whose = f"Default configs for {kind}s in the cluster" if name is None else None
    adjective = "All" if show_all else "Dynamic"
    lines = [f"{whose or f'{adjective} configs for {kind} {name}'} are:"]
    for entry in sorted(entries):
        shown = f"{entry.key}={'null' if entry.value is None else entry.value}"
        source = SOURCES.get(entry.source, "UNKNOWN")
        lines.append(f"  {shown} sensitive={str(entry.sensitive).lower()} synonyms={{{source}:{shown}}}")
    return lines
