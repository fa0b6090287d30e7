"""The options of the sources, as one table. Spark passes them as texts, with keys in any case. An unknown option is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.config.endpoints import parse_servers
from kraftlab.config.errors import ConfigError
from kraftlab.config.json_files import BadJson, decode_json

from ..errors import WrongUse

QUORUM = "quorum://"
BATCHES, DAMAGES, RECORDS = "batches", "damages", "records"
PERMISSIVE, FAILFAST = "permissive", "failfast"

OPTIONS: Mapping[str, str] = {
    "path": "a directory of a controller, a segment or a snapshot (the argument of load())",
    "paths": "several of them, as a JSON array (a list argument of load())",
    "rows": "batches (default), damages, or records",
    "startingOffset": "the first offset; batches count where they begin",
    "endingOffset": "the offset after the last; it can lie above the committed end",
    "startingTimestamp": "leaves out batches older than this, in ms since 1970",
    "endingTimestamp": "leaves out batches of this time or later",
    "committed": "true (default): up to the committed end, unless endingOffset is given; false: all",
    "clusterId": "the cluster whose logs are accepted",
    "tasks": "number of tasks for the files; 4 per processor of this machine unless given",
    "pushdown": "true (default): where() prunes files by offset and batches by time; false for sessions that turn it off",
    "mode": "permissive (default) or failfast: a damage ends the read",
    "snapshots": "true (default): snapshots too; false: segments only",
    "maxRecords": "streams: approximate number of records of a micro-batch; all available ones unless given",
    "observer": "streams off a live quorum: the name by which its leader keeps the log for this reader",
    "commandConfig": "streams off a live quorum: a file with Kafka's client properties, which every Spark process reads",
    "startingEpoch": "streams off a live quorum: the epoch of the record before startingOffset",
}
"""Option → its meaning."""


class Options(NamedTuple):
    """The parsed options of a reader. Times are in ms since 1970; offsets and times are [from, to)."""

    places: tuple[str, ...]
    rows: str = BATCHES
    start_offset: int = 0
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    committed: bool = True
    cluster_id: str | None = None
    tasks: int | None = None
    pushdown: bool = True
    mode: str = PERMISSIVE
    snapshots: bool = True
    max_records: int | None = None
    observer: str | None = None
    start_epoch: int | None = None
    command_config: str | None = None

    @property
    def live(self) -> str | None:
        """The bootstrap servers if the place is a running quorum: `quorum://HOST:PORT[,…]`."""
        found = [place for place in self.places if place.startswith(QUORUM)]
        return found[0].removeprefix(QUORUM) if found else None


def parse(given: Mapping[str, str]) -> Options:
    """Parse options. WrongUse for an unknown option or an invalid value."""
    known = {name.lower(): name for name in OPTIONS}
    values: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() not in known:
            raise WrongUse(f"there is no option {key!r}; known are {', '.join(OPTIONS)}")
        values[known[key.lower()]] = value
    places = (*([values["path"]] if "path" in values else []), *_paths(values.get("paths", "[]")))
    if not places:
        raise WrongUse("no path was given; give the directories of controllers to load()")
    if len(places) > 1 and any(place.startswith(QUORUM) for place in places):
        raise WrongUse(f"a running quorum is read alone; give one {QUORUM}HOST:PORT[,HOST:PORT], or directories")
    check_servers(places[0])
    return Options(
        places,
        _choice(values, "rows", (BATCHES, DAMAGES, RECORDS)),
        _number(values, "startingOffset") or 0,
        _number(values, "endingOffset"),
        _number(values, "startingTimestamp"),
        _number(values, "endingTimestamp"),
        _choice(values, "committed", ("true", "false")) == "true",
        values.get("clusterId"),
        _number(values, "tasks", least=1),
        _choice(values, "pushdown", ("true", "false")) == "true",
        _choice(values, "mode", (PERMISSIVE, FAILFAST)),
        _choice(values, "snapshots", ("true", "false")) == "true",
        _number(values, "maxRecords", least=1),
        values.get("observer"),
        _number(values, "startingEpoch"),
        values.get("commandConfig"),
    )


def check_servers(place: str) -> None:
    """Raise WrongUse for a `quorum://` without valid addresses."""
    if place.startswith(QUORUM):
        try:
            parse_servers(place.removeprefix(QUORUM))
        except ConfigError as error:
            raise WrongUse(f"{place} names no quorum: {error}") from None


def _paths(text: str) -> list[str]:
    try:
        return decode_json(text.encode(), list[str])
    except BadJson as error:
        raise WrongUse(f"option paths is not a JSON array of texts: {error}") from None


def _choice(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name, choices[0]).lower()
    if value not in choices:
        raise WrongUse(f"option {name} is {value!r}; it is one of {', '.join(choices)}")
    return value


def _number(values: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise WrongUse(f"option {name} is {text!r}; it is a whole number of at least {least}")
    return value
