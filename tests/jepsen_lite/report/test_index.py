"""The index of runs, its pages in the console, and its commands."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from jepsen_lite.command import chaos
from jepsen_lite.commands.test import test as the_test
from jepsen_lite.history import Op
from jepsen_lite.report import words
from jepsen_lite.report.index import Index, Row, grid
from jepsen_lite.report.web import pages
from jepsen_lite.store import RunDirectory
from jepsen_lite.verdicts import SAFETY, Verdict
from kraftlab.cli import main
from kraftlab.cli.output import CommandFailed
from kraftlab.console.app import Guard, application
from kraftlab.console.core import Settings

OPS = [
    Op(index=0, process=0, f="get", outcome="ok", invoked_ns=0, ended_ns=5),
    Op(index=1, process=0, f="get", outcome="info", invoked_ns=6, ended_ns=9),
]
BYTES = "application/octet-stream"
VALID = (Verdict(checker="stats", valid=True),)
LATE = (Verdict(checker="availability", valid=False, kind="liveness", reason="it never came back"),)


def test_a_row_has_what_filters_need(new_run, tmp_path: Path) -> None:
    new_run(OPS, VALID, nemeses=("kill", "pause"))
    new_run(OPS, LATE, workload="topics", nemeses=())
    text = Index(tmp_path).render()
    assert 'data-workload="registers" data-nemeses="kill pause" data-verdict="valid"' in text
    assert 'data-workload="topics" data-nemeses="none" data-verdict="liveness"' in text
    assert "availability: it never came back" in text
    for option in ("registers", "topics", "kill", "none", "liveness"):
        assert f"<option>{option}</option>" in text


BROKEN = (Verdict(checker="witness", valid=False, reason="one lies"),)


def test_the_grid_has_workloads_and_nemeses_with_the_newest_run_first(new_run, tmp_path: Path) -> None:
    new_run(OPS, BROKEN, nemeses=("kill",))
    new_run(OPS, VALID, nemeses=("kill",))
    new_run(OPS, VALID, nemeses=("kill", "pause"))
    new_run(OPS, VALID, workload="topics", nemeses=())
    index = Index(tmp_path)
    found = grid(index.rows()[0])
    assert found.columns == ("kill", "none", "kill, pause")
    cells = {
        (workload, nemeses): cell for workload, line in found.lines for nemeses, cell in zip(found.columns, line, strict=True)
    }
    assert [row.word.name for row in cells["registers", "kill"].rows] == ["valid", "safety"]
    assert cells["registers", "kill"].word == words.WORDS[SAFETY]
    assert (cells["topics", "kill"].rows, cells["topics", "kill"].word) == ((), None)
    text = index.render()
    assert text.count('class="cell good"') == 3
    assert text.count('class="cell bad"') == 1
    assert "safety violated, 1 ok, 0 fail, 1 info" in text


def test_a_cell_shows_three_runs_and_how_many_more_there_are(new_run, tmp_path: Path) -> None:
    for _ in range(5):
        new_run(OPS, VALID, nemeses=("kill",))
    new_run(OPS, VALID, nemeses=("pause",))
    text = Index(tmp_path).render()
    assert text.count('class="cell good"') == 4
    assert '<small class="good">+2</small>' in text


def test_valid_runs_show_the_number_of_checkers_and_others_the_reason(new_run, tmp_path: Path) -> None:
    new_run(OPS, (*VALID, Verdict(checker="witness", valid=True)))
    new_run(OPS, BROKEN)
    text = Index(tmp_path).render()
    assert '<td class="wrap">2 checkers</td>' in text
    assert '<td class="wrap">witness: one lies</td>' in text


def test_a_run_is_linked_once_it_has_a_page(new_run, tmp_path: Path) -> None:
    directory = new_run(OPS, VALID)
    link = f'href="{directory.name}/report/index.html"'
    assert link not in Index(tmp_path).render()
    served = Index(tmp_path, builds_pages=True).render()
    assert link in served
    assert '<a href="/">← Console</a>' in served
    assert "Console" not in Index(tmp_path).render()
    directory.report.mkdir()
    (directory.report / "index.html").touch()
    assert link in Index(tmp_path).render()


def test_runs_without_a_record_and_those_that_cannot_be_read_are_listed_apart(new_run, tmp_path: Path) -> None:
    new_run(OPS, VALID)
    damaged = new_run(OPS, VALID)
    (damaged.path / "run.json").write_text("{")
    going_on = RunDirectory.new(tmp_path, "topics", "9")
    text = Index(tmp_path).render()
    assert f"<li>{going_on.name}</li>" in text
    assert "run.json cannot be read" in text
    assert text.count("<tr data-workload") == 1


def test_unchanged_runs_are_not_read_again(new_run, tmp_path: Path) -> None:
    directory, index = new_run(OPS, VALID), Index(tmp_path)
    first = index.render()
    (directory.path / "history.parquet").unlink()
    assert index.render() == first


def test_the_version_follows_runs(new_run, tmp_path: Path) -> None:
    index, versions = Index(tmp_path), set()
    versions.add(index.version())
    going_on = RunDirectory.new(tmp_path, "topics", "9")
    versions.add(index.version())
    done = new_run(OPS, VALID)
    versions.add(index.version())
    going_on.write_record(done.record())
    versions.add(index.version())
    assert len(versions) == 4
    assert index.version() in versions


def test_a_run_that_is_done_while_others_are_read_gives_another_version(
    new_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run([])
    index = Index(tmp_path)
    rows = index.rows

    def read_slowly() -> tuple[list[Row], list[str]]:
        found = rows()
        new_run([])
        return found

    monkeypatch.setattr(index, "rows", read_slowly)
    before = index.version()
    assert f'data-version="{before}"' in index.render()
    assert index.version() != before


def test_hostile_names_stay_text(new_run, tmp_path: Path) -> None:
    new_run(OPS, [Verdict(checker="<b>", valid=False, reason="<img src=x onerror=alert(1)>")], nemeses=('"><script>',))
    text = Index(tmp_path).render()
    assert "<img" not in text
    assert text.count("<script") == 2


@pytest.fixture
def server(tmp_path: Path) -> TestClient:
    settings = Settings(False, False, None, (), frozenset(), secure=False, runs=True)
    app = Guard(application(None, pages(tmp_path), settings), settings)
    return TestClient(app, "http://127.0.0.1", raise_server_exceptions=False, backend="trio")


def test_a_run_appears_when_it_is_done_and_its_page_is_built_when_it_is_opened(new_run, server: TestClient) -> None:
    assert "There are no runs" in server.get("/runs").text
    version = server.get("/runs/version").text
    directory = new_run(OPS, VALID)
    assert directory.name in server.get("/runs/").text
    assert server.get("/runs/version").text != version
    answer = server.get(f"/runs/{directory.name}/report/index.html")
    assert (answer.status_code, "All checkers passed: stats." in answer.text) == (200, True)
    directory.write_record(directory.record().__class__(**{**_fields(directory), "verdicts": LATE}))
    assert "liveness violated" in server.get(f"/runs/{directory.name}/report/index.html").text


def _fields(directory: RunDirectory) -> dict[str, object]:
    record = directory.record()
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_files_of_a_run_are_text_or_downloads_and_never_pages(new_run, server: TestClient) -> None:
    directory = new_run(OPS, VALID)
    log = server.get(f"/runs/{directory.name}/nodes/broker-1.log")
    assert (log.status_code, log.text, log.headers["content-type"]) == (200, "said something\n", "text/plain; charset=utf-8")
    assert log.headers["x-content-type-options"] == "nosniff"
    assert server.get(f"/runs/{directory.name}/plan.json").headers["content-type"] == "application/json"
    directory.report.mkdir(exist_ok=True)
    for name in ("evil.html", "evil.js"):
        (directory.path / name).write_text("<script>alert(1)</script>")
        (directory.report / name).write_text("alert(1)")
        answer = server.get(f"/runs/{directory.name}/{name}")
        assert (answer.headers["content-type"], "attachment" in answer.headers["content-disposition"]) == (BYTES, True)
        assert server.get(f"/runs/{directory.name}/report/{name}").status_code == 404
    (directory.report / "index.html").write_text("<script>alert(1)</script>")
    assert "alert(1)" not in server.get(f"/runs/{directory.name}/report/index.html").text


def test_a_pipe_among_the_node_logs_is_no_log(new_run, server: TestClient) -> None:
    """A pipe without a writer would be read without end."""
    directory = new_run(OPS, VALID)
    os.mkfifo(directory.nodes / "broker-9.log")
    assert server.get(f"/runs/{directory.name}/report/index.html").status_code == 200
    assert server.get(f"/runs/{directory.name}/nodes/broker-9.log").status_code == 404


@pytest.mark.parametrize("name", ["run.json", "plan.json", "history.parquet", "log.jsonl", "strikes.json", "observations.json"])
def test_a_pipe_in_place_of_a_file_holds_nothing_up(new_run, server: TestClient, name: str) -> None:
    directory = new_run(OPS, VALID)
    (directory.path / name).unlink(missing_ok=True)
    os.mkfifo(directory.path / name)
    answer = server.get(f"/runs/{directory.name}/report/index.html")
    assert answer.status_code in (404, 500)
    assert "there is no such run" in answer.text or f"{name} is not a regular file" in answer.text
    assert server.get("/runs/").status_code == 200


def test_directories_and_what_is_outside_are_not_shown(new_run, server: TestClient, tmp_path: Path) -> None:
    directory = new_run(OPS, VALID)
    (tmp_path / "outside").symlink_to("/etc")
    assert server.get(f"/runs/{directory.name}/").status_code == 404
    for path in ("..%2f..%2fetc/passwd", "outside/passwd", "..%2f..%2fetc/report/index.html"):
        assert server.get(f"/runs/{path}").status_code == 400


@pytest.mark.parametrize("path", ["/runs/a%00b", "/runs/a/b%00/report/index.html"])
def test_a_path_that_no_file_can_have_is_refused(server: TestClient, path: str) -> None:
    assert server.get(path).status_code == 400


def test_a_page_from_elsewhere_gets_nothing(server: TestClient) -> None:
    assert server.get("/runs/", headers={"Host": "evil.example:80"}).status_code == 403
    assert server.get("/runs/", headers={"Host": "localhost:1"}).status_code == 200


def test_a_page_that_cannot_be_built_says_why(new_run, server: TestClient) -> None:
    directory = new_run(OPS, VALID)
    (directory.path / "history.parquet").write_bytes(b"no parquet")
    answer = server.get(f"/runs/{directory.name}/report/index.html")
    assert (answer.status_code, "history.parquet cannot be read" in answer.text) == (500, True)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(chaos, arguments, catch_exceptions=True)


def test_report_writes_the_page_of_the_newest_run_and_the_index(new_run, tmp_path: Path) -> None:
    new_run(OPS, VALID)
    newest = new_run(OPS, VALID)
    found = run("report", "--store", str(tmp_path), "--json")
    assert json.loads(found.output) == {
        "pages": [f"{newest.path}/report/index.html"],
        "index": f"{tmp_path}/index.html",
        "unreadable": [],
    }
    text = (tmp_path / "index.html").read_text()
    assert text.count("/report/index.html") == 1
    assert (tmp_path / ".assets" / "page.css").is_file()


def test_report_of_all_runs_writes_each_page(new_run, tmp_path: Path) -> None:
    made = [new_run(OPS, VALID) for _ in range(3)]
    found = run("report", "--all", "--store", str(tmp_path))
    assert found.output.splitlines() == [*(f"{each.path}/report/index.html" for each in reversed(made)), f"{tmp_path}/index.html"]
    assert all((each.report / "index.html").is_file() for each in made)


def test_report_of_a_run_outside_the_store_writes_no_index(new_run, tmp_path: Path) -> None:
    made = new_run(OPS, VALID)
    before = set(tmp_path.rglob("index.html"))
    found = run("report", str(made.path), "--store", str(tmp_path / "other"), "--json")
    assert found.exit_code == 0, found.output
    assert set(tmp_path.rglob("index.html")) - before == {made.report / "index.html"}
    assert json.loads(found.output)["index"] is None


def test_report_of_all_runs_skips_an_unreadable_one(new_run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [new_run(OPS, VALID) for _ in range(3)]
    (made[1].path / "plan.json").write_text("{")
    found = run("report", "--all", "--store", str(tmp_path))
    assert [(each.report / "index.html").is_file() for each in made] == [True, False, True]
    assert (tmp_path / "index.html").is_file()
    assert isinstance(found.exception, CommandFailed)
    assert ("1 of 3 runs have no page" in found.exception.text, found.exception.exit_code) == (True, 1)
    with pytest.raises(SystemExit) as ended:
        main.run(["chaos", "report", "--all", "--store", str(tmp_path), "--json"])
    assert ended.value.code == 1
    document = json.loads(capsys.readouterr().out)
    assert (len(document["pages"]), len(document["unreadable"])) == (2, 1)


@pytest.mark.parametrize(
    "damage", [lambda path: path.mkdir(), lambda path: path.write_bytes(b'{"workload": "\xe1", "world": "real"}')]
)
def test_an_unreadable_record_does_not_hide_the_index(new_run, tmp_path: Path, damage) -> None:
    bad, good = new_run(OPS, VALID), new_run(OPS, VALID)
    (bad.path / "run.json").unlink()
    damage(bad.path / "run.json")
    rows, unreadable = Index(tmp_path).rows()
    assert [row.name for row in rows] == [good.name]
    assert [f"{bad.path}/run.json cannot be read" in text for text in unreadable] == [True]


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["report"], "no run latest", 1),
        (["report", "--all"], "there are no runs in", 64),
        (["report", "topics/1", "--all"], "RUN topics/1 and --all were both given", 64),
        (["report", "topics/1"], "no run topics/1", 1),
    ],
)
def test_report_names_the_missing_run(tmp_path: Path, arguments: list[str], text: str, code: int) -> None:
    error = run(*arguments, "--store", str(tmp_path)).exception
    assert isinstance(error, CommandFailed)
    assert (text in error.text, error.exit_code) == (True, code)
    advice = error.text.partition(" with: kraftlab chaos test ")[2]
    if advice:
        the_test.make_context("test", shlex.split(advice))
