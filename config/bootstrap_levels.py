"""Feature levels of a new cluster that was formatted for others than the newest (KIP-1022).

Formatting writes them beside meta.properties. They count once: the first active controller that finds its log empty finalizes
its own levels. So format all first controllers with the same levels. Later changes go through `kraftlab features`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kraftlab.metadata.features import (
    DEPENDS_ON_METADATA_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED,
    fresh_levels,
    level_text,
    metadata_version_from,
)

from . import properties
from .errors import ConfigError
from .meta_properties import write_durably

FILE_NAME = "bootstrap.levels"


def choose(release: str | None, features: Iterable[str]) -> dict[str, int]:
    """Return all levels of a cluster that starts at a release (None: the newest), with `NAME=LEVEL` for single features.

    ConfigError for an unknown release, feature or level, and for levels that contradict each other.
    """
    chosen: dict[str, int] = {}
    for item in features:
        name, _, text = item.partition("=")
        lowest, highest = SUPPORTED.get(name, (0, 0))
        if name not in SUPPORTED or name == KRAFT_VERSION:
            known = ", ".join(sorted(SUPPORTED.keys() - {KRAFT_VERSION}))
            raise ConfigError(f"--feature {item}: there is no feature {name!r} whose level can be chosen; there are {known}")
        try:
            level = metadata_version_from(text) if name == METADATA_VERSION and "-" in text else int(text)
        except ValueError:
            level = -1
        if not lowest <= level <= highest:
            raise ConfigError(f"--feature {item}: the level of {name} is one of {lowest} to {highest}")
        chosen[name] = level
    try:
        version = chosen.get(METADATA_VERSION) if release is None else metadata_version_from(release)
    except ValueError as error:
        raise ConfigError(f"--release-version {release}: {error}") from None
    if release is not None and METADATA_VERSION in chosen:
        raise ConfigError(f"--release-version and --feature {METADATA_VERSION} set the same level; give one of them")
    levels = fresh_levels(chosen=chosen) if version is None else fresh_levels(version, chosen)
    for name, needed in DEPENDS_ON_METADATA_VERSION.items():
        if levels.get(name, 0) > 0 and levels[METADATA_VERSION] < needed:
            raise ConfigError(
                f"{name}={levels[name]} needs {METADATA_VERSION} {level_text(METADATA_VERSION, needed)} or newer, not "
                f"{level_text(METADATA_VERSION, levels[METADATA_VERSION])}"
            )
    return levels


def write(directory: Path, levels: dict[str, int]) -> None:
    """Write the levels durably into a metadata directory. OSError."""
    write_durably(directory / FILE_NAME, properties.dumps({name: str(level) for name, level in sorted(levels.items())}))


def read(directory: Path) -> dict[str, int] | None:
    """Return the levels that the directory was formatted for; None for the newest. ConfigError if the file cannot be read."""
    path = directory / FILE_NAME
    if not path.exists():
        return None
    try:
        levels = {name: int(level) for name, level in properties.load(path).items()}
    except ValueError as error:
        raise ConfigError(f"{path} has an invalid level: {error}; format this directory again") from error
    for name, level in levels.items():
        lowest, highest = SUPPORTED.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            raise ConfigError(f"{path}: this software does not support {name}={level}; run the software that formatted it")
    return levels
