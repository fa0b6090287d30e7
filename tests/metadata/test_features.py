"""Feature levels of this software."""

from __future__ import annotations

from kraftlab.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    bootstrap_records,
    is_supported,
    supported_features,
)
from kraftlab.metadata.records import FeatureLevel


def test_a_fresh_cluster_is_finalized_at_a_level_that_every_node_supports() -> None:
    (record,) = bootstrap_records()
    assert record == FeatureLevel(0, METADATA_VERSION, METADATA_VERSION_LEVEL)
    assert (METADATA_VERSION, METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL) in supported_features()


def test_only_levels_in_range_are_supported_and_any_feature_may_be_removed() -> None:
    assert is_supported(METADATA_VERSION, METADATA_VERSION_LEVEL)
    assert not is_supported(METADATA_VERSION, METADATA_VERSION_LEVEL + 1)
    assert not is_supported("group.version", 1)
    assert is_supported("group.version", 0)
