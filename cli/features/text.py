"""Texts of `features` as in Kafka's tool: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlab.metadata.features import KRAFT_VERSION, METADATA_VERSION, fresh_levels, level_text, metadata_version_from

from ..output import BadArgument

_NAME_WIDTH, _VERSION_WIDTH = 42, 17


class FeatureView(NamedTuple):
    """One feature of the cluster; `finalized` is 0 if it is off."""

    name: str
    lowest: int
    highest: int
    finalized: int
    epoch: int


def feature_lines(features: Iterable[FeatureView]) -> list[str]:
    return [
        f"Feature: {view.name:<{_NAME_WIDTH}}SupportedMinVersion: {level_text(view.name, view.lowest):<{_VERSION_WIDTH}}"
        f"SupportedMaxVersion: {level_text(view.name, view.highest):<{_VERSION_WIDTH}}"
        f"FinalizedVersionLevel: {level_text(view.name, view.finalized):<{_VERSION_WIDTH}}Epoch: {view.epoch}"
        for view in sorted(features)
    ]


def parse_levels(features: Iterable[str], metadata: str | None, release: str | None) -> dict[str, int]:
    """Return the levels of `NAME=LEVEL` texts, `--metadata VERSION` and `--release-version`. BadArgument.

    A metadata.version may have a number or a name. A release sets the levels of its new clusters for features without a level.
    """
    levels: dict[str, int] = {}
    for item in features:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise BadArgument(f"Can't parse feature=level string {item}: equals sign not found.")
        if name in levels:
            raise BadArgument(f"Feature {name} was specified more than once.")
        levels[name] = _level(name, text)
    if metadata is not None:
        if METADATA_VERSION in levels:
            raise BadArgument(f"Feature {METADATA_VERSION} was specified more than once.")
        levels[METADATA_VERSION] = _level(METADATA_VERSION, metadata)
    if release is not None:
        levels = {**fresh_levels(_level(METADATA_VERSION, release)), **levels}
    return levels


def levels_above(wanted: Mapping[str, int], finalized: Mapping[str, int]) -> dict[str, int]:
    """Return the wanted levels of features that are above them now; a feature without a wanted level goes to 0."""
    return {
        name: wanted.get(name, 0) for name, level in finalized.items() if level > wanted.get(name, 0) and name != KRAFT_VERSION
    }


def _level(name: str, text: str) -> int:
    text = text.strip()
    if name == METADATA_VERSION and not text.lstrip("-").isdecimal():
        try:
            return metadata_version_from(text)
        except ValueError as error:
            raise BadArgument(str(error)) from None
    try:
        return int(text)
    except ValueError:
        raise BadArgument(f"Can't parse feature=level string {name}={text}: unable to parse {text} as a short.") from None


def done_lines(action: str, levels: Mapping[str, int], dry_run: bool) -> list[str]:
    """Return the lines about levels that were changed. `action` is upgraded, downgraded or disabled."""
    verb = f"can be {action}" if dry_run else f"was {action}"
    return [f"{name} {verb}." if action == "disabled" else f"{name} {verb} to {level}." for name, level in sorted(levels.items())]


def failed_lines(action: str, levels: Mapping[str, int], dry_run: bool, reason: str) -> list[str]:
    """Return one line for each feature, and their number: no level was changed."""
    base = {"upgraded": "upgrade", "downgraded": "downgrade", "disabled": "disable"}[action]
    verb = f"Can not {base}" if dry_run else f"Could not {base}"
    lines = [
        f"{verb} {name}. {reason}" if action == "disabled" else f"{verb} {name} to {level}. {reason}"
        for name, level in sorted(levels.items())
    ]
    return [*lines, f"{len(lines)} out of {len(lines)} operation(s) failed."]
