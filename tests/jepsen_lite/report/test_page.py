"""A run's page is complete, its numbers are the run's, and values of clients have no effect in it."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path

import msgspec
import pytest

from jepsen_lite import evidence
from jepsen_lite.evidence import Cycle, Edge
from jepsen_lite.history import Op
from jepsen_lite.report import content, page
from jepsen_lite.report.words import PROVES
from jepsen_lite.store import RunDirectory, StoreError
from jepsen_lite.verdicts import Verdict

VOID = {"meta", "link", "input", "br", "hr", "img"}
SECTIONS = ["verdict", "checkers", "time", "availability", "nodes", "run", "files"]


class Page(html.parser.HTMLParser):
    """The contents of a page: elements by id, the text of each section, links. Elements must be closed where they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        assert len(found) == len(attributes), f"{tag} has an attribute twice"
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if tag not in VOID:
            self._open.append((tag, str(found.get("id", ""))))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1][0] == tag, f"{tag} closes {self._open[-1]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.texts[name] = f"{self.texts[name]} {data}" if name in self.texts else data

    def text(self, name: str) -> str:
        """Return the text of the element with that id, in one line."""
        return " ".join(self.texts[name].split())

    @property
    def links(self) -> list[str]:
        return [str(found[name]) for _, found in self.tags for name in ("href", "src") if name in found]


def test_each_checker_has_a_sentence_about_what_it_proves() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(content.__file__).parents[1].glob("checkers/*.py")]
    sources += [path.read_text(encoding="utf-8") for path in Path(content.__file__).parents[1].glob("workloads/*.py")]
    names = {name for text in sources for name in re.findall(r'^    name = "(.+)"$', text, re.MULTILINE)}
    assert {"witness", "course", "moved-data"} <= names == set(PROVES)


def written(directory: RunDirectory) -> Page:
    return Page(page.write_page(directory).read_text())


def test_every_section_of_an_illegal_run_is_there_once(illegal_run: RunDirectory) -> None:
    found = written(illegal_run)
    assert [name for name in found.ids if name in {*SECTIONS, "illegal", "operations"}] == [
        "verdict", "checkers", "illegal", "time", "availability", "operations", "nodes", "run", "files",
    ]  # fmt: skip
    assert len(found.ids) == len(set(found.ids))
    charts = [name for name in found.ids if name.startswith("chart-")]
    assert charts == [f"chart-{name}" for name in ("faults", "nodes", "offsets", "latency", "quantiles", "rates", "timeline")]


def test_the_banner_says_what_was_found_why_and_how_to_play_it_again(illegal_run: RunDirectory) -> None:
    banner = written(illegal_run).text("verdict")
    assert "safety violated" in banner
    assert "linearizable: key 'x': these operations cannot have happened one at a time" in banner
    assert f"kraftlab chaos replay {illegal_run.name}" in banner
    assert "fail: it has refused it, so the operation had no effect" in banner
    for words in (
        "operations 6",
        "ok 4",
        "fail 1",
        "info 1",
        "faults injected 2",
        "took 1.00 s",
        "3.11.7",
        "kraftlab 0.1.0",
        "proxy",
    ):
        assert words in banner


def test_numbers_of_the_page_are_those_of_the_run(illegal_run: RunDirectory) -> None:
    found, report = written(illegal_run), content.gather(illegal_run)
    whole = report.overall[""]
    assert whole.latencies_us == (25_000, 60_000, 60_000, 60_000)
    assert "all 4 25 ms 60 ms 60 ms 60 ms" in found.text("table-quantiles")
    assert "set ok 2 2.0" in found.text("table-rates")
    assert "set info 1 1.0" in found.text("table-rates")
    (partition, kill) = report.effects
    assert (partition.around.longest_outage_s, partition.around.recovered_s) == (0.885, 0.16)
    assert f"partition 3000→3001 50 ms 800 ms {0.885 * 1000:.0f} ms 160 ms" in found.text("availability")
    assert kill.strike.end_ns is None
    assert "kill 3002 70 ms never undone" in found.text("availability")
    assert "disk-full 1 80 ms needs root" in found.text("availability")


def test_the_data_of_the_pictures_is_that_of_the_run(illegal_run: RunDirectory) -> None:
    scene = json.loads(written(illegal_run).texts["scene"])
    assert scene["functions"] == ["get", "set"]
    assert [point[0] for point in scene["points"]] == list(range(6))
    assert scene["points"][3] == [3, 65_000, 635_000, 1, "i"]
    assert [lane["label"] for lane in scene["faults"]] == ["partition", "kill"]
    assert [(lane["label"], len(lane["spans"])) for lane in scene["nodes"]] == [("controller-3002", 2), ("controller-3000", 2)]
    assert scene["curves"][0]["points"] == [[0, 1, 2], [100_000, 5, 6], [500_000, 6, 6]] or scene["curves"][0][1]
    assert scene["illegal"][0]["key"] == "x"
    assert {op[10] for op in scene["ops"]} >= {"get x → 1", "set x 3 ? DEADLINE_EXCEEDED", "set x 4 ✕ NOT_CONTROLLER"}


def test_the_longest_order_of_an_illegal_history_is_a_list_too(illegal_run: RunDirectory) -> None:
    found = written(illegal_run).text("illegal")
    assert re.search(r"1 · set x 2, then 2 ✕ refused next: 2 · get x → 1", found)


def test_a_cycle_is_explained_edge_by_edge(new_run, illegal_run: RunDirectory) -> None:
    cycle = Cycle("G1c", (Edge(0, 1, "wr", "1 read what 0 wrote"), Edge(1, 0, "realtime", "1 returned before 0 began")))
    ops = list(illegal_run.run().history)
    directory = new_run(ops, [Verdict(checker="list-append", valid=False, ops=(0, 1), details=evidence.shown(cycles=[cycle]))])
    found = written(directory).text("cycles")
    assert "G1c found by list-append" in found
    assert "wr before 1: 1 read what 0 wrote" in found
    assert "realtime before 0: 1 returned before 0 began" in found


def test_the_page_needs_nothing_but_files_that_are_there(illegal_run: RunDirectory) -> None:
    path = page.write_page(illegal_run)
    found = Page(path.read_text())
    outside = [link for link in found.links if not link.startswith(("#", "data:,"))]
    assert set(outside) >= {
        "page.css",
        "charts.js",
        "pictures.js",
        "theme.js",
        "../history.parquet",
        "../nodes/controller-3000.log",
    }
    for link in outside:
        if link != "../../../index.html":
            assert (path.parent / link).resolve().is_file(), link
    assert "//" not in re.sub(r"http://www\.w3\.org/2000/svg", "", "".join(outside))


HOSTILE = "</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(2)>{{7*7}}\u2028"


def test_values_of_clients_stay_text(new_run) -> None:
    fields = {"process": 0, "outcome": "ok", "invoked_ns": 0, "ended_ns": 5}
    ops = [
        Op(index=0, f=HOSTILE, key=HOSTILE, value=HOSTILE, result={HOSTILE: [HOSTILE]}, **fields),
        Op(index=1, f="set", key=HOSTILE, value=1, error=HOSTILE, **{**fields, "outcome": "info"}),
    ]
    cycle = Cycle(HOSTILE, (Edge(0, 1, HOSTILE, HOSTILE), Edge(1, 0, HOSTILE, HOSTILE)))
    verdict = Verdict(
        checker=HOSTILE, valid=False, reason=HOSTILE, ops=(0, 1), details={"said": HOSTILE} | evidence.shown(cycles=[cycle])
    )
    directory = new_run(
        ops,
        [verdict],
        command=HOSTILE,
        product=HOSTILE,
        properties={HOSTILE: HOSTILE},
        node_exits={1: HOSTILE},
        violations=(HOSTILE,),
    )
    found = written(directory)
    assert {tag for tag, _ in found.tags}.isdisjoint({"img", "iframe", "object"})
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert [attributes.get("src") for tag, attributes in found.tags if tag == "script"] == [
        "theme.js",
        None,
        "lanes.js",
        "charts.js",
        "pictures.js",
    ]
    scene = json.loads(found.texts["scene"])
    assert scene["functions"][0] == HOSTILE
    assert "49" not in found.text("verdict").replace(HOSTILE, "")
    assert HOSTILE.split("\u2028")[0] in found.texts["checkers"]


def test_a_run_in_which_nothing_was_asked_has_a_page(new_run) -> None:
    found = written(new_run(strikes=(), observations=()))
    assert "not judged" in found.text("verdict")
    assert "There were no operations." in found.text("time")
    assert "no faults" in found.text("availability")
    assert not [name for name in found.ids if name.startswith("chart-")]


def test_a_run_without_faults_or_observations_has_its_latencies(new_run) -> None:
    ops = [Op(index=0, process=0, f="get", outcome="ok", invoked_ns=0, ended_ns=5_000_000)]
    found = written(new_run(ops, [Verdict(checker="stats", valid=True)], strikes=(), observations=()))
    assert "All checkers passed: stats." in found.text("verdict")
    assert [name for name in found.ids if name.startswith("chart-")] == [
        "chart-latency", "chart-quantiles", "chart-rates", "chart-timeline",
    ]  # fmt: skip


def test_a_run_that_was_over_at_once_has_a_page(new_run) -> None:
    directory = new_run([Op(index=0, process=0, f="get", outcome="ok", invoked_ns=0, ended_ns=500)])
    directory.write_record(msgspec.structs.replace(directory.record(), ended_ns=0))
    assert "There were no operations" not in written(directory).text("time")


def test_evidence_of_another_shape_is_reported_and_the_page_is_made(new_run) -> None:
    verdicts = [
        Verdict(checker="old", valid=False, details={"illegal": [{"key": 1}]}),
        Verdict(
            checker="another run",
            valid=False,
            ops=(77,),
            details=evidence.shown(cycles=[Cycle("G0", (Edge(77, 78, "ww", "so"),))]),
        ),
    ]
    found = written(new_run([], verdicts))
    assert "The evidence of old cannot be drawn" in found.text("checkers")
    assert "The evidence of another run cannot be drawn" in found.text("checkers")


def test_a_long_run_names_its_drawn_part(new_run) -> None:
    ops = [
        Op(index=n, process=n % 5, f="get", outcome="ok", invoked_ns=n * 50_000, ended_ns=n * 50_000 + 9) for n in range(20_000)
    ]
    directory = new_run(ops, [Verdict(checker="stats", valid=False, reason="one lies", ops=(15_000,))])
    found, report = written(directory), content.gather(directory)
    assert report.timeline == (10_000, 20_000)
    assert "of 20,000: every 2nd, the slowest of each of 400 spans of time" in found.text("time")
    assert "operations 10,000 to 19,999 of 20,000, around the first that a checker names: the rest is cut" in found.text("time")
    assert len(report.scene.points) <= 10_000 + 400 + 1
    assert sum(op.lane >= 0 for op in report.scene.ops) == content.TIMELINE


def test_a_run_that_was_cut_short_or_did_not_recover_says_so(new_run) -> None:
    directory = new_run([], cut_short="interrupted", not_ready="broker 1 is fenced", violations=("two leaders in epoch 4",))
    found = written(directory)
    assert "The run was cut short: interrupted" in found.text("verdict")
    assert "After the faults the cluster was not ready: broker 1 is fenced" in found.text("verdict")
    assert "two leaders in epoch 4" in found.text("checkers")


def test_a_run_that_was_shrunk_shows_the_least_run_that_still_fails(new_run, illegal_run: RunDirectory) -> None:
    least = new_run(list(illegal_run.run().history)[:3], workload="least", strikes=(), observations=())
    (illegal_run.path / "shrunk").mkdir()
    (illegal_run.path / "shrunk" / "least-run").write_text(f"../../../{least.name}\n")
    page.write_page(least)
    found = written(illegal_run)
    assert "Shrunk from 1 faults and 6 operations to 1 and 3" in found.text("minimal")
    assert "1 · process 1: set x 2" in found.text("minimal")
    assert f"../../../{least.name}/report/index.html" in found.links
    (least.path / "run.json").unlink()
    assert "minimal" not in written(illegal_run).ids


def test_a_simulated_run_that_broke_a_rule_shows_its_last_steps(illegal_run: RunDirectory) -> None:
    (illegal_run.path / "transcript.txt").write_text("".join(f"n0 step <{number}>\n" for number in range(300)))
    found = written(illegal_run)
    assert "The last 200 steps of the simulation before a rule broke n0 step <100>" in found.text("nodes")
    assert found.text("nodes").endswith("n0 step <299>")
    assert "../transcript.txt" in found.links


def test_the_same_run_gives_the_same_page(illegal_run: RunDirectory) -> None:
    assert page.render(content.gather(illegal_run)) == page.render(content.gather(illegal_run))


def test_a_page_is_current_until_its_run_is_judged_again(illegal_run: RunDirectory) -> None:
    assert not page.is_current(illegal_run)
    path = page.write_page(illegal_run)
    assert page.is_current(illegal_run)
    (path.parent / "charts.js").write_text("of another version")
    assert not page.is_current(illegal_run)
    page.write_page(illegal_run)
    illegal_run.write_record(illegal_run.record())
    assert not page.is_current(illegal_run)


def test_an_unreadable_run_is_reported(illegal_run: RunDirectory) -> None:
    Path(illegal_run.path / "history.parquet").write_bytes(b"no parquet")
    with pytest.raises(StoreError, match=r"history\.parquet cannot be read"):
        page.write_page(illegal_run)
