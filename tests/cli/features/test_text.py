"""Texts of `features` as in Kafka's tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.cli.features.text import FeatureView, done_lines, failed_lines, feature_lines, levels_above, parse_levels
from kraftlab.cli.output import BadInput
from kraftlab.metadata.features import KRAFT_VERSION, SUPPORTED, fresh_levels


def test_features_are_described_as_kafka_describes_them(transcript: Callable[[str], Any]) -> None:
    finalized = {**fresh_levels(), KRAFT_VERSION: 1}
    views = [FeatureView(name, low, high, finalized[name], 305) for name, (low, high) in SUPPORTED.items()]
    assert feature_lines(views) == transcript("017").stdout


def test_levels_are_numbers_and_metadata_versions_have_names() -> None:
    assert parse_levels(["group.version=1", "metadata.version=4.0-IV1"], None, None) == {
        "group.version": 1,
        "metadata.version": 23,
    }
    assert parse_levels([], "4.3", None) == {"metadata.version": 30}
    assert parse_levels(["group.version=0"], None, "4.0") == {
        "group.version": 0,
        "metadata.version": 25,
        "transaction.version": 2,
    }
    assert parse_levels(["metadata.version=25"], None, None) == {"metadata.version": 25}


@pytest.mark.parametrize("argument", ["group.version", "=1", "group.version=x", "metadata.version=9.9"])
def test_an_invalid_level_is_refused(argument: str) -> None:
    with pytest.raises(BadInput):
        parse_levels([argument], None, None)


@pytest.mark.parametrize(
    ("levels", "metadata"), [(["group.version=0", "group.version=1"], None), (["metadata.version=25"], "4.3")]
)
def test_a_feature_has_one_level(levels: list[str], metadata: str | None) -> None:
    with pytest.raises(BadInput, match="was specified more than once"):
        parse_levels(levels, metadata, None)


def test_lines_of_successful_and_failed_updates() -> None:
    levels = {"metadata.version": 25, "group.version": 1}
    assert done_lines("upgraded", levels, False) == ["group.version was upgraded to 1.", "metadata.version was upgraded to 25."]
    assert done_lines("downgraded", {"a": 20}, True) == ["a can be downgraded to 20."]
    assert done_lines("disabled", {"a": 0}, False) == ["a was disabled."]
    assert failed_lines("upgraded", levels, False, "Why.") == [
        "Could not upgrade group.version to 1. Why.",
        "Could not upgrade metadata.version to 25. Why.",
        "2 out of 2 operation(s) failed.",
    ]
    assert failed_lines("disabled", {"a": 0}, True, "Why.")[0] == "Can not disable a. Why."


def test_a_release_lowers_only_levels_that_are_above_its_own() -> None:
    finalized = {"metadata.version": 30, "transaction.version": 2, "group.version": 1, "kraft.version": 1, "share.version": 0}
    assert levels_above({"metadata.version": 29, "transaction.version": 2}, finalized) == {
        "metadata.version": 29,
        "group.version": 0,
    }
    assert levels_above({"metadata.version": 31, "transaction.version": 2, "group.version": 1}, finalized) == {}
