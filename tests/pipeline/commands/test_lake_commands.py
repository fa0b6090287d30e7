"""`kraftlab pipeline samples`, `vacuum`, `ingest`, `build` and `sql` as far as they go without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.lake.commits import Lake

DOCUMENT = {
    "version": 1,
    "brokers": [
        {
            "broker": 1,
            "logDirs": [
                {
                    "logDir": "/d0",
                    "error": None,
                    "partitions": [{"partition": "orders-0", "size": 5, "offsetLag": 0, "isFuture": False}],
                }
            ],
        }
    ],
}


def _sample(tmp_path: Path, lake: Path, document: object, at_ms: int) -> int:
    file = tmp_path / "dirs.json"
    file.write_text(json.dumps(document))
    return run(["pipeline", "samples", "--lake", str(lake), "--input", str(file), "--at", str(at_ms), "--json"])


def test_samples_are_added_and_the_same_moment_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    assert [_sample(tmp_path, lake, DOCUMENT, at_ms) for at_ms in (5, 9, 9)] == [0, 0, 0]
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"rows": 1, "sampled_ms": 5, "offline": 0}
    rows = Lake(str(lake)).arrow("silver.log_dir_samples", ["sampled_ms", "topic", "size_bytes"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(5, "orders", 5), (9, "orders", 5)]


def test_an_offline_directory_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offline = {"brokers": [{"broker": 1, "logDirs": [{"logDir": "/d0", "error": "gone", "partitions": []}]}]}
    assert _sample(tmp_path, tmp_path / "lake", offline, 5) == 1
    assert json.loads(capsys.readouterr().out)["offline"] == 1


@pytest.mark.parametrize("name", ["orders", "orders-99999999999", "orders-\N{SUPERSCRIPT TWO}"])
def test_a_partition_that_is_none_is_wrong_use(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = {"partition": name, "size": 5, "offsetLag": 0, "isFuture": False}
    document = {"brokers": [{"broker": 1, "logDirs": [{"logDir": "/d0", "partitions": [partition]}]}]}
    assert _sample(tmp_path, tmp_path / "lake", document, 5) == 64
    assert "is not a partition: expected TOPIC-NUMBER" in capsys.readouterr().out


def test_states_that_are_to_stay_readable_survive_a_vacuum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    for _ in range(4):
        _sample(tmp_path, lake, DOCUMENT, 5)
    capsys.readouterr()
    assert run(["pipeline", "vacuum", "--lake", str(lake), "--keep", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    for version in (2, 3, 4):
        earlier = Lake(str(lake))
        earlier.pin("silver.log_dir_samples", version)
        assert earlier.arrow("silver.log_dir_samples").num_rows == 1


def test_vacuum_makes_a_table_right_that_a_power_cut_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    for at_ms in (5, 6):
        _sample(tmp_path, lake, DOCUMENT, at_ms)
    torn = lake / "silver" / "log_dir_samples" / "_delta_log" / f"{2:020d}.json"
    torn.write_bytes(torn.read_bytes()[:40])
    capsys.readouterr()
    assert _sample(tmp_path, lake, DOCUMENT, 7) == 0, "a writer removes it too"
    torn.write_bytes(torn.read_bytes()[:40])
    assert run(["pipeline", "logdirs", "skew", "--lake", str(lake)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "silver.log_dir_samples cannot be read" in line
    assert line.endswith("after a power cut, kraftlab pipeline vacuum removes an incomplete commit")
    assert run(["pipeline", "vacuum", "--lake", str(lake)]) == 0
    assert Lake(str(lake)).arrow("silver.log_dir_samples", ["sampled_ms"])["sampled_ms"].to_pylist() == [5]


def test_vacuum_says_what_it_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    for _ in range(2):
        _sample(tmp_path, lake, DOCUMENT, 5)
    capsys.readouterr()
    assert run(["pipeline", "vacuum", "--lake", str(lake), "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)
    assert (removed["files"], removed["size_bytes"] > 0) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vacuum", "--lake", "{here}/none"], "is not a lake: nothing was ever committed there"),
        (["samples", "--lake", "{here}/lake", "--at", "1795255430000000000"], "is not in the range"),
        (["build", "silver", "nothing", "--lake", "{here}/lake"], "'nothing' is not a table of silver"),
        (["build", "silver", "--lake", "{here}/lake", "--range", "9-3"], "invalid range '9-3': expected LO-HI"),
        (["sql", "select 1", "--lake", "{here}/lake", "--version", "1"], "--version needs a query of one table, not of none"),
        (["sql", "select * from silver.topics", "--lake", "{here}/none", "--version", "1"], "has no silver.topics"),
        (["sql", "select 1", "--lake", "{here}/lake", "--version", "1", "--as-of", "now"], "needs a query of one table"),
        (["state", "--lake", "{here}/lake", "--version", "1", "--as-of", "now"], "give --version or --as-of, not both"),
        (["state", "--lake", "{here}/none", "--as-of", "2026-11-21T14:05:00Z"], "has no version from before"),
        (["ingest", "--lake", "{here}/lake"], "Missing argument"),
        (["ingest", "here", "--lake", "{here}/lake", "--mode", "loud"], "'loud' is not one of"),
        (["stream", "here", "--lake", "{here}/lake", "--trigger", "nan"], "invalid duration 'nan': expected e.g. 500ms, 5s"),
        (["stream", "here", "--lake", "{here}/lake", "--trigger", "inf"], "invalid duration 'inf': expected e.g. 500ms, 5s"),
        (["sql", "select 1", "--lake", "{here}/lake", "--limit", "99999999999"], "99999999999 is not in the range"),
    ],
)
def test_wrong_use_ends_with_64_and_says_what_to_do(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *(argument.replace("{here}", str(tmp_path)) for argument in arguments)]) == 64
    assert words in capsys.readouterr().err


def test_without_a_cluster_there_is_no_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "samples", "--lake", str(tmp_path / "lake")]) == 1
    assert "no cluster is up on this machine; give --bootstrap-server, or a file with --input" in capsys.readouterr().err


def test_names_of_tables_are_found_in_a_query_but_not_in_its_texts() -> None:
    from kraftlab.pipeline.runs.query import with_view_names

    text = "select 'silver.topics', \"silver.topics\" from silver.topics t join gold.plans on t.a = x.silver.topics2"
    assert with_view_names(text) == (
        "select 'silver.topics', \"silver.topics\" from silver_topics t join gold_plans on t.a = x.silver.topics2"
    )
