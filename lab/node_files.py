"""The `server.properties` of a node in a local cluster: computed, given, and edited by hand.

`kraftlab up` computes the keys that make the cluster (ids, listeners, directories: the *managed* ones). `--property` adds keys
for all nodes, which are kept in `cluster.json`. A person may edit the file of one node. Each start brings the three together, key
by key: a line that still is as `up` wrote it gets the value that `up` wants now, and an edited one is kept. An edit of a managed
key would tear the cluster apart, so it is refused by name. The rest of the file, with its comments, stays as it is.

An edit is known by comparison with what `up` wrote, which `cluster.json` keeps. While files are being written it keeps both the
old and the new values: after a crash between the two, neither counts as an edit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kraftlab.config import properties
from kraftlab.config.models import build_any
from kraftlab.config.secrets import shown

from .cluster_plan import ClusterError

MAKES_THE_CLUSTER = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "metadata.log.dir",
        "log.dirs",
        "log.dir",
        "log.file",
    }
)
"""Keys that no value fits for all nodes: managed ones, other names of them, and the log's file, which `up` opens itself. One
broker.rack for all of them is possible.
"""

NEW_FILE = b"# Your edits and comments stay. kraftlab up refuses edits of the keys that make the cluster.\n"


class WantedValues(NamedTuple):
    """Values of a node's file as `up` wants them. `managed`: keys that `up` computes. `given`: keys that were given, or taken
    away, at this start.
    """

    values: Mapping[str, str]
    managed: Collection[str]
    given: Collection[str]


class MergedValues(NamedTuple):
    """Values to be written, and what a person should know of them. `refused`: managed keys that were edited."""

    values: dict[str, str]
    remarks: list[str]
    refused: list[str]


def merge(found: Mapping[str, str] | None, written: Sequence[Mapping[str, str]], wanted: WantedValues) -> MergedValues:
    """Bring together a file's values and those that `up` wants. `found`: None without a file. `written`: values that `up` has
    written, or was about to write; empty if that is not known, for a cluster of an older release.
    """
    if found is None:
        return MergedValues(dict(wanted.values), [], [])
    merged = MergedValues({}, [], [])
    for key in dict.fromkeys([*found, *wanted.values]):
        is_known = not written or any(values.get(key) == found.get(key) for values in written)
        value = _merge_key(key, found.get(key), wanted, is_edited=not is_known, is_old=not written, merged=merged)
        if value is not None:
            merged.values[key] = value
    return merged


def _merge_key(
    key: str, found: str | None, wanted: WantedValues, *, is_edited: bool, is_old: bool, merged: MergedValues
) -> str | None:
    """Return the value to be written, None for no line. The first row that fits counts."""
    want = wanted.values.get(key)
    if found == want:
        return want
    if key in wanted.managed:
        if is_edited and found is not None:
            merged.refused.append(key)
        elif is_edited or is_old:
            was = f", not {shown(key, found)}" if found is not None else "; its line had been removed"
            merged.remarks.append(f"{_now(key, want)} again{was}")
        return want
    if key in wanted.given:
        if is_edited:
            was = f", no longer {shown(key, found)}, as edited" if found is not None else "; its line had been removed"
            merged.remarks.append(f"{_now(key, want)} now{was} by hand")
        return want
    if is_edited:
        if want is not None:
            stays = (
                f"stays {shown(key, found)}, as edited by hand"
                if found is not None
                else "stays without a line, as edited by hand"
            )
            merged.remarks.append(f"{key} {stays}; the cluster's value is {shown(key, want)}")
        return found
    return found if is_old and found is not None else want


def _now(key: str, value: str | None) -> str:
    return f"{key} has no line" if value is None else f"{key} is {shown(key, value)}"


def prepare(
    path: Path, name: str, written: Sequence[Mapping[str, str]], wanted: WantedValues
) -> tuple[str | None, Iterator[str]]:
    """Return the file's new text, None if it stays as it is, and remarks. ClusterError for an edit that is refused, ConfigError
    for values with which the node would not start. Nothing is written. A file without any key counts as lost.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = None
    found = None if data is None else properties.parse(data, str(path)) or None
    merged = merge(found, written, wanted)
    for key in merged.refused:
        line = f"{key}={wanted.values[key]}" if key in wanted.values else f"no line {key}"
        raise ClusterError(
            f"{path}: {key}={shown(key, (found or {})[key])} was edited by hand, and this cluster needs {line}; write that, or "
            "remove the line"
        )
    is_same = merged.values == found
    build_any(merged.values, str(path) if is_same else f"server.properties of {name}")
    text = None if is_same else properties.edited(data or NEW_FILE, merged.values)
    return text, (f"{name}: {remark}" for remark in merged.remarks)


def kept(held: Mapping[str, str], given: Mapping[str, str], unset: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the properties that are kept with a cluster from now on, and what a person should know. ClusterError for a key that
    cannot be taken away because it is not there, and for one that makes the cluster.
    """
    given = {key: value.strip() for key, value in given.items()}
    for key in sorted(MAKES_THE_CLUSTER & ({*given} | {*held} - {*unset})):
        undo = f"; take it away with --unset-property {key}" if key in held and key not in given else ""
        raise ClusterError(f"{key} makes the cluster and differs between nodes; it cannot be set with --property{undo}")
    for key in unset:
        if key in given:
            raise ClusterError(f"{key} is to be set and taken away at once; give one of --property and --unset-property")
        if key not in held:
            names = ", ".join(sorted(held)) or "none"
            raise ClusterError(f"no property {key} is kept with this cluster; kept are: {names}")
    remarks = [f"{key}: {shown(key, held[key])} no longer, the nodes take their default" for key in unset]
    for key, value in given.items():
        if held.get(key) != value:
            change = shown(key, value) if key not in held else f"{shown(key, held[key])} → {shown(key, value)}"
            remarks.append(f"{key}: {change}, kept for later starts")
    unchanged = [key for key in held if key not in given and key not in unset]
    if unchanged:
        remarks.append(f"kept from earlier starts: {', '.join(sorted(unchanged))}")
    return {key: value for key, value in {**held, **given}.items() if key not in unset}, remarks
