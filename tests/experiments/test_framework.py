"""The runner, the store, the page and the command, on an experiment of a few arithmetic trials."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import click
import pyarrow.parquet
import pytest

from kraftlab.cli import main
from kraftlab.experiments import catalogue, runner
from kraftlab.experiments.experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, column, trial
from kraftlab.experiments.plots import Axis, cdf
from kraftlab.experiments.statistics import median_of
from kraftlab.experiments.store import JOURNAL, PARQUET, RowStore

ROOT = Path(__file__).parents[2]
RAN: list[Trial] = []


def trials(size: Size, seed: int) -> list[Trial]:
    return [trial(line, number, seed, factor=factor) for line, factor in (("a", 1), ("b", 2)) for number in range(3)]


def run_trial(of: Trial) -> list[Row]:
    RAN.append(of)
    return [{"ms": float(of.parameters["factor"]) * (of.number + 1)}]


def figures(rows: Rows) -> list[Figure]:
    return [Figure("<Title>", cdf(Axis("ms", 0, 10), [("a & b", column(rows, "ms"))]), "caption")]


def measured(rows: Rows) -> dict[str, Estimate]:
    return {"a: median": median_of(column(rows, "ms", "a")), "unpublished": Estimate(1, 1, 1)}


PUBLISHED = (Published("a: median", 7.0, "ms", "a book"), Published("never measured", 9.0, "ms", "a book"))
EXPERIMENT = Experiment(
    *("tiny", "Is it so?", "Arithmetic.", "a book", PUBLISHED),
    trials,
    run_trial,
    figures,
    measured,
    lambda rows: [f"{len(rows)} rows"],
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    monkeypatch.setitem(catalogue.MODULES, "tiny", "tiny")
    module = ModuleType("kraftlab.experiments.tiny")
    module.EXPERIMENT = EXPERIMENT  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def run(out: Path, seed: int = 1) -> runner.Outcome:
    return runner.run("tiny", "small", seed, jobs=1, out=out)


def test_rows_are_parquet_with_seeds_and_the_machine(tmp_path: Path) -> None:
    rows = pyarrow.parquet.read_table(run(tmp_path).page.with_name(PARQUET)).to_pylist()
    assert [(row["line"], row["number"], row["seed"], row["ms"]) for row in rows[2:4]] == [
        ("a", 2, "1/a/2", 3),
        ("b", 0, "1/b/0", 2),
    ]
    assert {"processors", "python", "platform", "version"} <= rows[0].keys()
    assert not (tmp_path / "tiny" / "small-1" / JOURNAL).exists()


def test_a_run_goes_on_after_an_interruption_and_repeats_a_torn_trial(tmp_path: Path) -> None:
    def interrupt(finished, left):
        for number, done in enumerate(finished):
            if number == 3:
                raise KeyboardInterrupt
            yield done

    with pytest.raises(KeyboardInterrupt):
        runner.run("tiny", "small", 1, jobs=1, out=tmp_path, watch=interrupt)
    with (tmp_path / "tiny" / "small-1" / JOURNAL).open("ab") as journal:
        journal.write(b'{"line": "b", "num')
    part = runner.plot("tiny", "small", 1, out=tmp_path)
    assert part is not None and "4 of 6 trials are there" in part.page.read_text()
    RAN.clear()
    assert run(tmp_path).rows == run(tmp_path / "whole").rows
    assert [one.key for one in RAN[:2]] == [("a", 2), ("b", 2)] and len(RAN) == 2 + 6


def test_a_finished_run_is_not_run_again_and_another_seed_is_another_run(tmp_path: Path) -> None:
    run(tmp_path)
    RAN.clear()
    run(tmp_path)
    assert RAN == []
    run(tmp_path, seed=2)
    assert len(RAN) == 6
    assert (tmp_path / "index.html").read_text().count("Is it so?") == 2


def test_the_same_seed_gives_the_same_page_to_the_byte(tmp_path: Path) -> None:
    first, second = run(tmp_path / "1"), run(tmp_path / "2")
    assert first.page.read_bytes() == second.page.read_bytes()
    before = first.page.read_bytes()
    again = runner.plot("tiny", "small", 1, out=tmp_path / "1")
    assert again is not None and again.page.read_bytes() == before


def test_the_page_shows_ours_and_published_and_needs_only_files_beside_it(tmp_path: Path) -> None:
    page = run(tmp_path).page
    text = page.read_text()
    assert "<Title>" not in text and "&lt;Title&gt;" in text and "a &amp; b" in text
    rows = re.findall(
        r'<tr><th scope="row" class="wrap">(.*?)</th><td class="n" data-of="published">(.*?)</td><td class="n".*?>(.*?)</td>',
        text,
    )
    assert rows == [("a: median", "7", "2 (1 – 3)"), ("never measured", "9", "–"), ("unpublished", "–", "1")]
    links = [link for link in re.findall(r'(?:href|src)="([^"#]+)"', text) if not link.startswith("data:")]
    assert all((page.parent / link).is_file() for link in links) and len(links) >= 4


@pytest.mark.parametrize(
    "line, words",
    [
        ("garbage", "line 1 of .* is damaged: .*; remove that line and run the experiment again to go on"),
        ("", "line 1 of .* is damaged"),
        ("\udcff", "line 1 of .* is damaged"),
        ('{"line": "a", "number": 0, "rows": [{"ms": 1}]}', "has rows of no trial; remove the directory"),
        ('{"line": "a", "number": 0, "rows": [{"line": "a", "number": 0, "ms": "x"}]}', "do not go together"),
    ],
)
def test_a_damaged_journal_is_named(line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny" / "small-1" / JOURNAL
    path.parent.mkdir(parents=True)
    path.write_bytes(line.encode(errors="surrogateescape") + b"\n")
    assert main.run(["experiment", "run", "tiny", "--jobs", "1", "--out", str(tmp_path)]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_rows_of_another_version_that_cannot_be_shown_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner.run("tiny", "small", 1, jobs=1, out=tmp_path)
    path = tmp_path / "tiny" / "small-1" / PARQUET
    rows = pyarrow.parquet.read_table(path).to_pylist()
    older = [{**row, "version": "0.0.1"} | {"milliseconds": row.pop("ms")} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{k: v for k, v in row.items() if k != "ms"} for row in older]), path)
    for command in ("plot", "run"):
        assert main.run(["experiment", command, "tiny", "--out", str(tmp_path)]) == 1
        assert "has rows of kraftlab 0.0.1, which kraftlab" in capsys.readouterr().err


def test_a_damaged_file_of_rows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path).page.with_name(PARQUET)
    path.write_bytes(b"PAR1 but no more")
    assert main.run(["experiment", "plot", "tiny", "--out", str(tmp_path)]) == 1
    assert f"{path} is damaged" in capsys.readouterr().err


def test_a_store_with_nothing_has_no_rows(tmp_path: Path) -> None:
    store = RowStore(tmp_path, "tiny", "small", 1)
    assert store.rows() == [] and store.left(trials("small", 1)) == trials("small", 1)
    assert runner.plot("tiny", "small", 1, out=tmp_path) is None


# The command


def test_list_names_every_experiment_with_its_published_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["experiment", "list", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(found) == list(catalogue.MODULES)
    assert {"what": "150-155: median", "value": 287.0, "unit": "ms", "source": "thesis"} in found["leader-crash"]["published"]
    assert all(one["question"] and one["source"] for one in found.values())


def test_run_prints_numbers_and_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["experiment", "run", "tiny", "--jobs", "1", "--out", str(tmp_path)]
    assert main.run(arguments) == 0
    assert "a: median       7          2 (1 – 3)  ms" in capsys.readouterr().out
    assert main.run([*arguments, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["trials"], document["remarks"]) == (6, ["6 rows"])
    assert document["numbers"][0]["ours"] == {"value": 2.0, "low": 1.0, "high": 3.0}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "tinny"], "there is no experiment tinny; did you mean tiny?"),
        (["run"], "give the names of experiments, or --all to run all"),
        (["run", "tiny", "--all"], "--all"),
        (["plot", "tiny", "--seed", "-1"], "--seed"),
        (["rum"], "Did you mean 'run'?"),
    ],
)
def test_wrong_use_is_refused(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["experiment", *arguments]) == 64
    assert text in capsys.readouterr().err


def test_plot_without_rows_says_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["experiment", "plot", "tiny", "--full", "--seed", "3", "--out", str(tmp_path)]) == 1
    assert f"kraftlab experiment run tiny --full --seed 3 --out {tmp_path}" in capsys.readouterr().err


# The files


def test_an_experiment_is_one_file_of_at_most_150_lines() -> None:
    lengths = {
        name: len((ROOT / "experiments" / f"{module}.py").read_text().splitlines())
        for name, module in catalogue.MODULES.items()
        if name != "tiny"
    }
    assert {name: length for name, length in lengths.items() if length > 150} == {}


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "research" / "experiments.md").read_text(), re.DOTALL)
    assert len(source.splitlines()) <= 60
    module = ModuleType("kraftlab.experiments.example")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(catalogue.MODULES, "example", "example")
    outcome = runner.run("example", "small", 1, jobs=1, out=tmp_path)
    (svg,) = re.findall(r'<svg class="plot".*?</svg>', outcome.page.read_text(), re.DOTALL)
    ElementTree.fromstring(svg)
    assert len(outcome.rows) == 10


def test_names_are_completed() -> None:
    command = main.build().get_command(click.Context(main.build()), "experiment")
    assert isinstance(command, click.Group)
    names = next(parameter for parameter in command.commands["run"].params if parameter.name == "names")
    assert [item.value for item in names.shell_complete(click.Context(command.commands["run"]), "lead")] == [
        "leader-crash",
        "leader-kill",
    ]
