"""Mistyped places: an error, and no lake there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlab.pipeline.errors import WrongUse
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.runs import build, gold, ingest

SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.master": "local[1]"}.get))
"""As much of a session as is looked at before anything is done."""

RUNS: dict[str, tuple[Callable[[Lake], object], str]] = {
    "silver": (lambda lake: build.build(SPARK, lake), "holds no batches; the next step: kraftlab pipeline ingest"),
    "gold": (lambda lake: gold.build(SPARK, lake), "holds no tables; the next step: kraftlab pipeline ingest"),
    "ingest": (lambda lake: ingest.ingest(SPARK, lake, ["/no/such/place"]), "/no/such/place does not exist"),
    "ingest of a format": (
        lambda lake: ingest.ingest(SPARK, lake, ["/no/such/place"], format_name="kafka"),
        "/no/such/place does not exist",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_is_reported_before_anything_is_made_there(name: str, tmp_path: Path) -> None:
    run, reason = RUNS[name]
    with pytest.raises(WrongUse, match=reason):
        run(Lake(str(tmp_path / "mistyped" / "lake")))
    assert list(tmp_path.iterdir()) == []


def test_a_vacuum_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    assert Lake(str(tmp_path / "mistyped")).vacuum() == (0, 0)
    assert list(tmp_path.iterdir()) == []
