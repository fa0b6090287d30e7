"""A written run is read back unchanged, and an incomplete run is reported."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite import store
from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.history import History, Op
from jepsen_lite.report.index import Index, unfinished
from jepsen_lite.store import RunDirectory, RunRecord, StoreError
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options, Run
from kraftlab.checking.facts import Observation, Strike

NOON = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
operations = st.builds(
    Op,
    index=st.integers(0, 99),
    process=st.integers(0, 2**40),
    f=texts,
    key=texts,
    value=values,
    outcome=st.sampled_from(("ok", "fail", "info")),
    result=values,
    invoked_ns=st.integers(0, 2**60),
    ended_ns=st.integers(0, 2**60),
    error=texts,
    request_id=texts,
    node=st.integers(-1, 4000),
    offset=st.integers(-1, 2**60),
    epoch=st.integers(-1, 2**31 - 1),
)


@settings(max_examples=40)
@given(st.lists(operations, max_size=5, unique_by=lambda op: op.index))
def test_a_history_survives_its_table(ops: list[Op]) -> None:
    table = store.history_table("a/b", History(ops))
    assert list(store.history_of(table.to_pylist())) == sorted(ops, key=lambda op: op.index)


def _run() -> Run:
    lost = Op(index=1, process=1, f="set", key="t", value=5, outcome="info", invoked_ns=10, ended_ns=500, error="UNAVAILABLE")
    read = Op(
        index=0, process=0, f="get", key="t", outcome="ok", result=[4], invoked_ns=5, ended_ns=9, node=3000, offset=7, epoch=2
    )
    return Run(
        options=Options(seed="7"),
        history=History([lost, read]),
        log=CommittedLog((Entry(6, 7, 2, 1_000, "Config", {"value": "4"}, "ab:1"),), 0, 7),
        strikes=(Strike(kind="kill", begin_ns=3, end_ns=None, nodes=(3001,)),),
        observations=(Observation(at_ns=4, node=3000, is_up=True, epoch=2, leader=3000, high_watermark=7, log_end=7),),
        healed_ns=600,
        ended_ns=700,
        node_exits={3001: "out of words"},
        data={"sizes": [1, 2]},
    )


def _record(run: Run) -> RunRecord:
    return RunRecord(
        **run.facts(),
        workload="registers",
        world="real",
        log_end=7,
        verdicts=(Verdict(checker="witness", valid=False, reason="it lies", ops=(0,)),),
    )


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run, plan = _run(), FaultPlan(seed="7", actions=(Action(at_ms=5, kind="kill", target="leader", for_ms=100),))
    directory = RunDirectory.new(tmp_path, "registers", "7", NOON)
    directory.write_plan(plan)
    directory.write_run(_record(run), run)
    found = RunDirectory.find("latest", tmp_path)
    assert found.name == directory.name == "registers/20260101T120000-7"
    assert found.plan() == plan
    assert found.record() == _record(run)
    assert found.record().valid is False
    again = found.run()
    assert list(again.history) == list(run.history)
    assert (again.log, again.strikes, again.observations, again.data) == (run.log, run.strikes, run.observations, run.data)


def test_an_operation_without_an_outcome_has_no_return_in_the_table(tmp_path: Path) -> None:
    directory = RunDirectory.new(tmp_path, "registers", "7", NOON)
    directory.write_run(_record(_run()), _run())
    rows = pq.ParquetFile(directory.path / "history.parquet").read().to_pylist()
    assert [(row["outcome"], row["return_ns"]) for row in rows] == [("ok", 9), ("info", None)]


def test_runs_of_one_second_have_directories_of_their_own_and_the_newest_is_first(tmp_path: Path) -> None:
    made = [RunDirectory.new(tmp_path, "registers", "a seed/with a slash", NOON) for _ in range(2)]
    for directory in made:
        directory.write_record(_record(_run()))
    assert [directory.name for directory in store.all_runs(tmp_path)] == [made[1].name, made[0].name]
    assert RunDirectory.find("latest", tmp_path).name == made[1].name


def test_the_latest_link_of_a_nested_store_is_not_a_run(tmp_path: Path) -> None:
    tried = RunDirectory.new(tmp_path / "shrinking", "topics", "7", NOON)
    tried.write_run(RunRecord(workload="topics", world="real", options=Options()), _run())
    assert list(store.all_runs(tmp_path)) == []
    assert unfinished(tmp_path) == []
    (tried.path / "run.json").unlink()
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize("letter", ["7", "ß", "𝟕"])
def test_a_long_seed_has_a_directory_as_well(tmp_path: Path, letter: str) -> None:
    names = [RunDirectory.new(tmp_path, "topics", letter * 300, NOON).path.name for _ in range(2)]
    assert all(name.startswith(f"20260101T120000-{letter * 50}") for name in names)
    assert names[0] != names[1]


def test_a_run_that_was_cut_short_is_not_found(tmp_path: Path) -> None:
    RunDirectory.new(tmp_path, "registers", "7", NOON)
    with pytest.raises(StoreError, match="no run latest"):
        RunDirectory.find("latest", tmp_path)
    assert list(store.all_runs(tmp_path)) == []


def test_a_damaged_record_names_its_file(tmp_path: Path) -> None:
    directory = RunDirectory.new(tmp_path, "registers", "7", NOON)
    (directory.path / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"run\.json cannot be read"):
        directory.record()


def test_a_damaged_log_names_its_file(tmp_path: Path) -> None:
    directory = RunDirectory.new(tmp_path, "topics", "1", NOON)
    record = RunRecord(workload="topics", world="real", options=Options())
    directory.write_plan(FaultPlan(seed="1"))
    directory.write_run(record, Run(options=Options(), history=History([]), log=CommittedLog(())))
    (directory.path / "log.jsonl").write_bytes(b'{"offset": 0, "ba')
    with pytest.raises(StoreError, match=r"log\.jsonl cannot be read: .*; run it again"):
        directory.run()


def _null(table: pa.Table, name: str) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.nulls(len(table), pa.int64()))


def _texts(table: pa.Table, name: str, text: str) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array([text] * len(table)))


@pytest.mark.parametrize(
    "damaged",
    [
        lambda table: table.drop_columns(["call_ns"]),
        lambda table: table.rename_columns({"outcome": "outcomf"}),
        lambda table: _null(table, "call_ns"),
        lambda table: _texts(table, "value", "{"),
        lambda table: _texts(table, "outcome", "oj"),
        lambda table: _texts(table, "index", "0"),
    ],
    ids=["no column", "another column", "null", "not JSON", "not an outcome", "another type"],
)
def test_a_damaged_history_names_its_file(tmp_path: Path, damaged: Callable[[pa.Table], pa.Table]) -> None:
    directory, run = RunDirectory.new(tmp_path, "topics", "7"), _run()
    directory.write_run(_record(run), run)
    path = directory.path / "history.parquet"
    pq.write_table(damaged(pq.ParquetFile(path).read()), path)
    with pytest.raises(StoreError, match=r"history\.parquet cannot be read: .*; run it again"):
        directory.run()
    Index(tmp_path).render()


def test_an_unreadable_column_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, run = RunDirectory.new(tmp_path, "topics", "7"), _run()
    directory.write_run(_record(run), run)

    def refuse(*_: object, **__: object) -> None:
        raise pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")

    monkeypatch.setattr(pq.ParquetFile, "read", refuse)
    with pytest.raises(StoreError, match=r"history\.parquet cannot be read: Integers"):
        directory.run()
    assert "history.parquet cannot be read" in Index(tmp_path).render()
