"""Places as people, Arrow and Spark spell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.session.settings import Master
from kraftlab.pipeline.storage import uris


@pytest.mark.parametrize(
    ("given", "normal", "for_spark"),
    [
        ("/data/my lake/", "file:///data/my%20lake", "file:///data/my lake"),
        ("file:///data/lake/", "file:///data/lake", "file:///data/lake"),
        ("file:/data/lake", "file:///data/lake", "file:///data/lake"),
        ("s3a://bucket/lake", "s3://bucket/lake", "s3a://bucket/lake"),
        ("s3://bucket/lake/", "s3://bucket/lake", "s3a://bucket/lake"),
        ("hdfs://name:8020/lake", "hdfs://name:8020/lake", "hdfs://name:8020/lake"),
    ],
)
def test_every_spelling_is_one_place(given: str, normal: str, for_spark: str) -> None:
    assert uris.normalised(given) == normal
    assert uris.normalised(normal) == normal
    assert uris.for_spark(normal) == for_spark


def test_paths_are_taken_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert uris.local_path(uris.normalised("lake")) == tmp_path / "lake"
    assert uris.shown(uris.normalised("lake")) == str(tmp_path / "lake")


def test_a_path_is_refused_where_workers_have_other_disks() -> None:
    uris.check_reach("file:///data/lake", Master("local[2,3]", shares_files=True))
    uris.check_reach("s3://bucket/lake", Master("spark://host:7077", shares_files=False))
    with pytest.raises(WrongUse, match="/data/lake is on this machine's disk, which workers of spark://host:7077 do not share"):
        uris.check_reach("file:///data/lake", Master("spark://host:7077", shares_files=False))


def test_an_invalid_place_is_refused() -> None:
    with pytest.raises(WrongUse, match="an empty path"):
        uris.normalised("")
    with pytest.raises(WrongUse, match="cannot be read"):
        uris.file_system("ftp://host/lake")
