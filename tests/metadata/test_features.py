"""Feature levels that this software supports."""

from __future__ import annotations

import pytest

from kraftlab.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSIONS,
    bootstrap_records,
    fresh_levels,
    is_supported,
    level_text,
    loses_metadata,
    metadata_version_from,
    range_of,
    supported_features,
)
from kraftlab.metadata.records import Config, FeatureLevel


def test_a_fresh_cluster_finalizes_every_feature_but_the_quorums_at_its_newest_level() -> None:
    assert supported_features() == (
        ("eligible.leader.replicas.version", 0, 1),
        ("group.version", 0, 1),
        ("kraft.version", 0, 1),
        ("metadata.version", 7, 30),
        ("share.version", 0, 1),
        ("streams.version", 0, 1),
        ("transaction.version", 0, 2),
    )
    highest = {name: highest for name, _, highest in supported_features() if name != KRAFT_VERSION}
    assert fresh_levels() == highest
    written = {r.name: r.feature_level for r in bootstrap_records() if isinstance(r, FeatureLevel)}
    assert written == highest
    assert list(written) == ["metadata.version", *sorted(highest.keys() - {"metadata.version"})]


def test_a_cluster_with_eligible_leader_replicas_begins_with_a_min_isr_in_the_log() -> None:
    assert bootstrap_records(min_insync_replicas="2")[-1] == Config(0, 4, "", "min.insync.replicas", "2")
    without = bootstrap_records(fresh_levels(chosen={ELIGIBLE_LEADER_REPLICAS_VERSION: 0}))
    assert all(isinstance(record, FeatureLevel) and record.name != ELIGIBLE_LEADER_REPLICAS_VERSION for record in without)


def test_an_older_metadata_version_leaves_newer_features_off() -> None:
    assert fresh_levels(metadata_version_from("3.9")) == {METADATA_VERSION: 21}
    assert fresh_levels(metadata_version_from("4.1")) == {
        ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
        "group.version": 1,
        METADATA_VERSION: 27,
        "transaction.version": 2,
    }


def test_only_levels_in_range_are_supported_and_any_feature_may_be_removed() -> None:
    assert is_supported(METADATA_VERSION, METADATA_VERSION_LEVEL)
    assert is_supported(METADATA_VERSION, 7)
    assert not is_supported(METADATA_VERSION, 6)
    assert not is_supported(METADATA_VERSION, METADATA_VERSION_LEVEL + 1)
    assert is_supported("group.version", 0)
    assert is_supported("group.version", 1)
    assert not is_supported("group.version", 2)
    assert not is_supported("no.such", 1)
    assert is_supported("no.such", 0)


def test_the_quorums_version_is_in_no_feature_record() -> None:
    assert not is_supported(KRAFT_VERSION, 1)


def test_a_feature_that_a_node_does_not_register_is_supported_at_0_only() -> None:
    announced = (("group.version", 0, 1),)
    assert range_of(announced, "group.version") == (0, 1)
    assert range_of(announced, "share.version") == (0, 0)


def test_metadata_versions_have_levels_in_a_row_and_names() -> None:
    assert [version.level for version in METADATA_VERSIONS] == list(range(7, 31))
    assert level_text(METADATA_VERSION, 30) == "4.3-IV0"
    assert level_text("group.version", 1) == "1"
    assert metadata_version_from("3.3-IV3") == 7
    assert metadata_version_from("4.0") == 25
    with pytest.raises(ValueError, match=r"'9\.9' is not a metadata\.version"):
        metadata_version_from("9.9")


@pytest.mark.parametrize(
    ("current", "target", "loses"),
    [(30, 29, True), (29, 28, False), (29, 24, False), (29, 23, False), (29, 22, True), (22, 17, False), (17, 16, True)],
)
def test_a_downgrade_loses_metadata_if_a_level_on_the_way_changed_a_format(current: int, target: int, loses: bool) -> None:
    assert loses_metadata(current, target) is loses
