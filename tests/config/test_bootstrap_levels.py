"""Feature levels that a new cluster is formatted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.config import bootstrap_levels
from kraftlab.config.errors import ConfigError
from kraftlab.metadata.features import fresh_levels

ELR = "eligible.leader.replicas.version"


def test_a_release_brings_its_features_and_single_ones_can_be_chosen() -> None:
    assert bootstrap_levels.choose(None, [f"{ELR}=0"]) == {**fresh_levels(), ELR: 0}
    older = bootstrap_levels.choose("3.9", ["transaction.version=0"])
    assert (older["metadata.version"], older["transaction.version"], ELR in older) == (21, 0, False)
    assert bootstrap_levels.choose(None, ["metadata.version=4.2-IV1"])["metadata.version"] == 29


@pytest.mark.parametrize(
    ("release", "features", "reason"),
    [
        ("9.9", [], "--release-version 9.9: '9.9' is not a metadata.version"),
        (None, ["no.such=1"], "there is no feature 'no.such'"),
        (None, ["kraft.version=1"], "there is no feature 'kraft.version' whose level can be chosen"),
        (None, ["group.version=2"], "the level of group.version is one of 0 to 1"),
        (None, ["group.version"], "the level of group.version is one of 0 to 1"),
        ("4.3", ["metadata.version=30"], "set the same level"),
        ("3.9", [f"{ELR}=1"], "needs metadata.version 4.0-IV1 or newer, not 3.9-IV0"),
    ],
)
def test_unknown_and_contradictory_levels_are_refused(release: str | None, features: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        bootstrap_levels.choose(release, features)


def test_levels_are_kept_beside_the_log(tmp_path: Path) -> None:
    assert bootstrap_levels.read(tmp_path) is None
    levels = bootstrap_levels.choose("4.2", [])
    bootstrap_levels.write(tmp_path, levels)
    assert bootstrap_levels.read(tmp_path) == levels


@pytest.mark.parametrize("text", ["metadata.version=31\n", "no.such=1\n", "group.version=x\n"])
def test_unsupported_levels_are_refused_at_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / bootstrap_levels.FILE_NAME).write_text(text)
    with pytest.raises(ConfigError):
        bootstrap_levels.read(tmp_path)
