"""Test the pages in a real browser: there are no errors, everything has a size, and actions of a reader have their effects. A
script of the test runs next to the page's own scripts, acts as a reader and records the results.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jepsen_lite import evidence
from jepsen_lite.evidence import Cycle, Edge
from jepsen_lite.report import page
from jepsen_lite.report.index import Index
from jepsen_lite.store import RunDirectory
from jepsen_lite.verdicts import Verdict
from kraftlab.checking.facts import Observation, Strike

from .conftest import MS, operation

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path")

REPORT = """
const one = (name) => document.querySelector(name);
const key = (name, key) => one(name).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const later = () => new Promise((done) => setTimeout(done, 20));
const until = async (holds) => { while (!holds()) await later(); };
const called = (element, place) => element.id || element.parentElement.id || `${element.parentElement.className} ${place}`;
const found = {};
(async () => {
  await until(() => one("#chart-timeline svg").childElementCount > 0);
  found.sizes = Object.fromEntries([...document.querySelectorAll("section, .chart svg, .drawn svg, .ring svg")]
    .map((element, place) => [called(element, place), element.getBoundingClientRect().height]));
  found.overflow = document.documentElement.scrollWidth > innerWidth;
  found.order = document.querySelectorAll(".drawn .dot").length;
  found.refused = document.querySelectorAll(".drawn .refused").length;
  found.window = one("#window").textContent;
  key("#chart-latency svg", "+");
  await until(() => one("#window").textContent !== found.window);
  found.closer = one("#window").textContent;
  key("#chart-latency svg", "0");
  await until(() => one("#window").textContent === found.window);
  one("#legend-latency button").click();
  found.pressed = one("#legend-latency button").getAttribute("aria-pressed");
  key(".drawn", "ArrowRight");
  found.chosen = one("#operation").textContent;
  one("[data-do=among]").click();
  found.among = document.querySelectorAll(".drawn [role=button]").length;
  const before = getComputedStyle(document.body).backgroundColor;
  one("#theme").click();
  found.themed = before !== getComputedStyle(document.body).backgroundColor;
  document.body.dataset.found = JSON.stringify(found);
})();
"""

INDEX = """
const rows = () => [...document.querySelectorAll("#all tbody tr")].filter((row) => !row.hidden).length;
const put = (name, value) => {
  const field = document.querySelector(`[data-filter=${name}]`);
  field.value = value;
  field.dispatchEvent(new Event("input"));
};
const found = { all: rows(), linked: document.querySelectorAll("#all tbody a").length };
put("workload", "topics"); found.topics = rows();
put("workload", ""); put("nemesis", "kill"); found.kill = rows();
put("nemesis", ""); put("verdict", "liveness"); found.liveness = rows(); found.address = location.hash;
put("verdict", ""); put("text", "NEVER came"); found.text = rows();
put("text", ""); found.again = rows();
document.body.dataset.found = JSON.stringify(found);
"""

FRAMES = "window.requestAnimationFrame = (draw) => setTimeout(draw);"
"""Frames come in real time, for which the browser's virtual time does not wait on a busy machine."""

FRAME = """
const one = (name) => document.querySelector(name);
const later = () => new Promise((done) => setTimeout(done, 20));
const until = async (holds) => { while (!holds()) await later(); };
const within = (x) => x >= 0 && x <= innerWidth;
const found = {};
(async () => {
  const svg = one("#chart-latency svg"), room = svg.getBoundingClientRect();
  await until(() => svg.childElementCount > 0);
  const [left, width] = ["x", "width"].map((name) => Number(one("#chart-quantiles clipPath rect").getAttribute(name)));
  const dots = [...document.querySelectorAll("#chart-quantiles g[clip-path] circle")];
  found.quantiles = dots.map((dot) => dot.getAttribute("cx") <= left + width);
  const point = (type, x, buttons, button = 0) => svg.dispatchEvent(
    new PointerEvent(type, { clientX: room.left + x, clientY: room.top + 9, buttons, button, pointerId: 1, bubbles: true }));
  point("pointerdown", 300, 1);
  point("pointerleave", 300, 1);
  point("pointermove", 500, 0);
  found.brush = svg.querySelector(".brush").getAttribute("visibility");
  const go = one("#go");
  for (const number of ["2", "-1", "1.5"]) { go.value = number; go.dispatchEvent(new Event("change")); }
  found.no_such = one("#operation").textContent;
  go.value = "1";
  go.dispatchEvent(new Event("change"));
  found.last = one("#operation").textContent;
  const before = one("#window").textContent;
  svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", altKey: true, bubbles: true, cancelable: true }));
  await later();
  found.back = one("#window").textContent === before;
  one("[data-zoom=all]").click();
  await later();
  point("pointerdown", 20, 1);
  point("pointerup", 90, 0);
  await later();
  found.beside = one("#window").textContent;
  for (let times = 0; times < 22; times += 1) one("[data-zoom=in]").click();
  await until(() => one("#window").textContent.startsWith("1800.0000 s") || one("#window").textContent.startsWith("1799.99"));
  const shades = [...document.querySelectorAll("#chart-latency g[clip-path] rect")].map((rect) => rect.getBBox());
  found.shades = shades.map((box) => within(box.x) && within(box.x + box.width) && box.width > 900);
  const lines = [...document.querySelectorAll("#chart-offsets g[clip-path] path")].map((path) => path.getBBox());
  found.lines = lines.map((box) => within(box.x) && within(box.x + box.width));
  document.body.dataset.found = JSON.stringify(found);
})();
"""

HOSTILE = """
document.querySelector("[data-op]").click();
setTimeout(() => {
  const text = document.getElementById("operation").textContent;
  document.body.dataset.found = JSON.stringify({ images: document.images.length, text });
}, 100);
"""


NARROW = """
const until = async (holds) => { while (!holds()) await new Promise((done) => setTimeout(done, 20)); };
(async () => {
  const chart = document.getElementById("chart-latency");
  await until(() => !chart || chart.querySelector("svg").childElementCount > 0);
  const sections = [...document.querySelectorAll("section")];
  const wide = sections.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.id);
  const drawn = [...document.querySelectorAll(".space svg:not(.names), .growth")];
  const pictures = drawn.map((each) => each.getBoundingClientRect().height);
  const overflow = document.documentElement.scrollWidth > innerWidth;
  const tools = document.querySelector(".tools.sticky");
  if (tools) scrollTo(0, scrollY + tools.getBoundingClientRect().bottom + 300);
  const hidden = tools && tools.getBoundingClientRect().top + 6 < document.querySelector(".top").getBoundingClientRect().bottom;
  document.body.style.width = "345px";
  const wider = sections.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.id);
  document.body.dataset.found = JSON.stringify({ overflow, wide: [...wide, ...wider], pictures, hidden });
})();
"""


def visited(path: Path, script: str, folder: Path, width: int = 1300) -> dict[str, Any]:
    """Return the results of the script; fail if the browser reported errors, other than in pages of its own."""
    (path.parent / "frames.js").write_text(FRAMES)
    (path.parent / "probe.js").write_text(script)
    text = path.read_text().replace("</head>", '<script src="frames.js"></script></head>')
    probed = path.with_name("probed.html")
    probed.write_text(text.replace("</body>", '<script src="probe.js"></script></body>'))
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
            f"--window-size={width},900", "--virtual-time-budget=20000", f"--user-data-dir={folder}", probed.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line and "source: chrome://" not in line]
    assert complaints == []
    found = re.search(r'<body data-found="([^"]*)"', done.stdout)
    assert found is not None, "the script of the test did not come to its end"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def test_a_run_is_drawn_and_answers_its_reader(new_run, illegal_run: RunDirectory, tmp_path: Path) -> None:
    cycle = Cycle("G1c", (Edge(0, 1, "wr", "1 read what 0 wrote"), Edge(1, 0, "realtime", "1 returned before 0 began")))
    verdicts = [
        *illegal_run.record().verdicts,
        Verdict(checker="list-append", valid=False, details=evidence.shown(cycles=[cycle])),
    ]
    directory = new_run(list(illegal_run.run().history), verdicts)
    found = visited(page.write_page(directory), REPORT, tmp_path / "profile")
    assert {name for name, height in found["sizes"].items() if height < 40} == set()
    assert {"verdict", "illegal", "cycles", "time", "chart-faults", "chart-nodes", "chart-timeline"} <= found["sizes"].keys()
    assert not found["overflow"]
    assert (found["order"], found["refused"]) == (2, 1)
    assert found["window"] == "0.0000 s to 1.0000 s"
    assert found["closer"] == "0.2500 s to 0.7500 s"
    assert found["pressed"] == "false"
    assert re.match(r"\d+ · (set|get) x", found["chosen"])
    assert found["among"] > len(illegal_run.record().verdicts[1].ops)
    assert found["themed"]


def test_charts_keep_to_their_frame_however_close_one_looks(new_run, tmp_path: Path) -> None:
    hour_ms = 3_600_000
    ops = [operation(0, "get", None, 1, 0, 5), operation(1, "get", None, 1, hour_ms - 5, hour_ms)]
    strike = Strike(kind="partition", begin_ns=60_000 * MS, end_ns=3_000_000 * MS, links=((3000, 3001),))
    seen = [Observation(at_ns=at * hour_ms * MS, node=3000, is_up=True, high_watermark=at + 1, log_end=at + 2) for at in (0, 1)]
    directory = new_run(ops, strikes=[strike], observations=seen)
    found = visited(page.write_page(directory), FRAME, tmp_path / "profile")
    assert found["quantiles"] == [True] * 8, "also in the last bin, whose middle can be after the run"
    assert found["brush"] == "hidden", "the button was let go outside"
    assert found["no_such"] == ""
    assert found["last"].startswith("1 · get x")
    assert found["back"], "Alt and an arrow are the browser's own"
    assert found["beside"] == "0.00 s to 3600.00 s", "a drag across the labels chooses no time"
    assert found["shades"] == [True]
    assert found["lines"] == [True, True]


def test_values_of_clients_do_nothing_in_a_browser(new_run, tmp_path: Path) -> None:
    from jepsen_lite.history import Op

    bad = "</script><img src=x onerror=console.error('ran')>"
    op = Op(index=0, process=0, f=bad, key=bad, value=bad, outcome="ok", result=bad, invoked_ns=0, ended_ns=10**9)
    directory = new_run([op], [Verdict(checker=bad, valid=False, reason=bad, ops=(0,))])
    found = visited(page.write_page(directory), HOSTILE, tmp_path / "profile")
    assert found["images"] == 0
    assert bad in found["text"]


def test_filters_of_the_index_leave_the_runs_that_they_name(new_run, tmp_path: Path) -> None:
    new_run([], [Verdict(checker="stats", valid=True)], nemeses=("kill", "pause"))
    late = Verdict(checker="availability", valid=False, kind="liveness", reason="it never came back")
    page.write_page(new_run([], [late], workload="topics", nemeses=("partition",)))
    found = visited(Index(tmp_path).write(), INDEX.strip(), tmp_path / "profile")
    assert found == {
        "all": 2,
        "linked": 1,
        "topics": 1,
        "kill": 1,
        "liveness": 1,
        "address": "#verdict=liveness",
        "text": 1,
        "again": 2,
    }


def test_pages_fit_a_phone(new_run, illegal_run: RunDirectory, tmp_path: Path) -> None:
    move = '{"v":1,"time_us":%d,"node":%d,"event":"state","state":"%s","epoch":2,"hw":0,"from":"follower"}\n'
    illegal_run.write_trace([move % (70_000, 3000, "candidate"), move % (74_000, 3001, "leader")])
    cycle = Cycle("G1c", (Edge(2, 3, "wr", "3 read what 2 wrote"), Edge(3, 2, "realtime", "3 returned before 2 began")))
    cyclic = Verdict(checker="list-append", valid=False, details=evidence.shown(cycles=[cycle]))
    record = illegal_run.record()
    illegal_run.write_record(msgspec.structs.replace(record, verdicts=(*record.verdicts, cyclic)))
    new_run(list(illegal_run.run().history), [Verdict(checker="stats", valid=True)], nemeses=("a-fault-with-a-long-name",) * 9)
    found = visited(page.write_page(illegal_run), NARROW, tmp_path / "profile", width=500)
    assert (found["overflow"], found["wide"]) == (False, [])
    assert not found["hidden"], "the tools stay in sight"
    assert len(found["pictures"]) == 2
    assert found["pictures"][0] > 80
    found = visited(page.write_page(illegal_run), NARROW, tmp_path / "profile", width=760)
    assert (found["overflow"], found["hidden"]) == (False, False)
    found = visited(Index(tmp_path).write(), NARROW, tmp_path / "profile", width=500)
    assert (found["overflow"], found["wide"]) == (False, [])
    assert found["pictures"][0] > 60
