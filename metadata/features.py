"""Feature levels: the record formats and behaviours that a cluster has agreed on (KIP-584, KIP-778).

A feature is a name and a level. Each node supports a range of levels and registers it. A cluster *finalizes* one level per
feature with a FeatureLevel record. A node that replays a level outside its own range must stop, since it would misread later
records. So a level is finalized only if every node supports it. Level 0 equals no level at all.

`kraft.version` is the exception: it says where the quorum's voters are stored, belongs to the quorum, and never occurs in a
FeatureLevel record. `metadata.version` gates record formats. Its levels have names, and each says whether it changed a format;
a downgrade across such a level loses metadata.

A new cluster is finalized at the newest level of each feature, those of Kafka 4.3, whose behaviour is the reference. Logs of
earlier software finalize metadata.version only: every other feature is off there until it is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .records import RESOURCE_BROKER, AnyRecord, Config, FeatureLevel

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS = "min.insync.replicas"

METADATA_VERSION_LEVEL = 30
"""Level that a new cluster finalizes."""
METADATA_VERSION_NAME = "4.3-IV0"
"""Name of that level."""


class MetadataVersion(NamedTuple):
    """One level of metadata.version. `changes_format`: a downgrade below it can lose metadata."""

    level: int
    name: str
    changes_format: bool


METADATA_VERSIONS: tuple[MetadataVersion, ...] = tuple(
    MetadataVersion(level, name, changes_format)
    for level, (name, changes_format) in enumerate(
        (
            ("3.3-IV3", True),
            ("3.4-IV0", True),
            ("3.5-IV0", False),
            ("3.5-IV1", False),
            ("3.5-IV2", True),
            ("3.6-IV0", False),
            ("3.6-IV1", True),
            ("3.6-IV2", True),
            ("3.7-IV0", True),
            ("3.7-IV1", False),
            ("3.7-IV2", True),
            ("3.7-IV3", False),
            ("3.7-IV4", False),
            ("3.8-IV0", False),
            ("3.9-IV0", False),
            ("4.0-IV0", False),
            ("4.0-IV1", True),
            ("4.0-IV2", False),
            ("4.0-IV3", False),
            ("4.1-IV0", False),
            ("4.1-IV1", False),
            ("4.2-IV0", False),
            ("4.2-IV1", False),
            (METADATA_VERSION_NAME, True),
        ),
        start=7,
    )
)
"""All levels that can be finalized, lowest first."""

SUPPORTED: dict[str, tuple[int, int]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSIONS[0].level, METADATA_VERSIONS[-1].level),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
"""Feature → lowest and highest level that this software supports."""

DEFAULT_SINCE: dict[str, int] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: 26,
    "group.version": 22,
    "share.version": 28,
    "streams.version": 28,
    "transaction.version": 24,
}
"""Feature → the oldest metadata.version whose new clusters have it at its newest level."""

DEPENDS_ON_METADATA_VERSION: dict[str, int] = {ELIGIBLE_LEADER_REPLICAS_VERSION: 23}
"""Feature → metadata.version that its levels above 0 need."""


def supported_features() -> tuple[tuple[str, int, int], ...]:
    """Features in a node's registration: (name, lowest, highest), sorted."""
    return tuple((name, lowest, highest) for name, (lowest, highest) in sorted(SUPPORTED.items()))


def is_supported(name: str, level: int) -> bool:
    """Return True if this software supports that level of a FeatureLevel record. Level 0 removes a feature and is always
    supported.
    """
    lowest, highest = (0, 0) if name == KRAFT_VERSION else SUPPORTED.get(name, (0, 0))
    return level == 0 or lowest <= level <= highest


def range_of(announced: tuple[tuple[str, int, int], ...], name: str) -> tuple[int, int]:
    """(lowest, highest) level of a feature in a node's registration. A feature that is not registered is supported at 0 only."""
    return next(((lowest, highest) for named, lowest, highest in announced if named == name), (0, 0))


def level_text(name: str, level: int) -> str:
    """A level as people write it: 4.3-IV0 for a metadata.version, a number for any other feature."""
    names = {version.level: version.name for version in METADATA_VERSIONS} if name == METADATA_VERSION else {}
    return names.get(level, str(level))


def metadata_version_from(text: str) -> int:
    """Level of a version's name (`4.3-IV0`), or the newest of a release (`4.3`). ValueError for any other text."""
    found = [version.level for version in METADATA_VERSIONS if text in (version.name, version.name.partition("-")[0])]
    if not found:
        first, last = METADATA_VERSIONS[0].name, METADATA_VERSIONS[-1].name
        raise ValueError(f"{text!r} is not a metadata.version; it is one of {first} to {last}, or a release such as 4.3")
    return found[-1]


def loses_metadata(current: int, target: int) -> bool:
    """Return True if a downgrade of metadata.version crosses a level that changed a format."""
    return any(version.changes_format for version in METADATA_VERSIONS if target < version.level <= current)


def fresh_levels(metadata_version: int = METADATA_VERSION_LEVEL, chosen: Mapping[str, int] | None = None) -> dict[str, int]:
    """Levels that a new cluster of this metadata.version finalizes. `chosen` overrides single features.

    Features that did not exist in that version stay off.
    """
    levels = {name: SUPPORTED[name][1] for name, since in DEFAULT_SINCE.items() if since <= metadata_version}
    return levels | {METADATA_VERSION: metadata_version} | dict(chosen or {})


def bootstrap_records(levels: Mapping[str, int] | None = None, min_insync_replicas: str = "1") -> list[AnyRecord]:
    """First records of a cluster: the levels (None: the newest), metadata.version first. Eligible leader replicas also need a
    min.insync.replicas that every node reads from the log.
    """
    levels = fresh_levels() if levels is None else levels
    in_order = sorted(levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0]))
    records: list[AnyRecord] = [FeatureLevel(0, name, level) for name, level in in_order if level > 0]
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records.append(Config(0, RESOURCE_BROKER, "", MIN_INSYNC_REPLICAS, min_insync_replicas))
    return records
