"""Lanes are drawn once, and changed where they are when time goes on."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import BrowserPages, open_alone

pytestmark = pytest.mark.console

LANES = """
import "./lanes.js";
const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
document.querySelector("main").append(svg);
const span = (begin, end, about, text, short) => ({ begin_us: begin * 1e6, end_us: end && end * 1e6, about, text, short });
const lanes = (now) => [
  { label: "controller-3000", spans: [
    span(0, 20, "leader", "leads in epoch 4", "★ 4"), span(20, now, "", "knows no leader in epoch 5", "? 5")] },
  { label: "controller-3001-of-the-other-room", spans: [
    span(0, 22, "", "follows 3000 in epoch 4", "4"), span(22, now, "leader", "leads in epoch 5", "★ 5")] },
  { label: "partition", spans: [
    span(18, 19, "fault", "cut 3000→3001", "3000→3001"), span(30, null, "fault", "cut 3001→3002", "3001→3002")] },
];
const look = ({ about, text, short, end_us }) => (
  { fill: "var(--c0)", hatched: end_us === null, elected: about === "leader", words: [text, short] });
const options = (from, to) => (
  { from: from * 1e6, to: to * 1e6, left: 132, width: 600, height: 22, end: to * 1e6, look, times: [[30e6, "12:00:30"]] });
window.drawAt = (from, to) => kraftlabLanes.drawLanes(svg, lanes(to), options(from, to));
window.found = (x, y, from, to) => kraftlabLanes.spanAt(lanes(to), x, y, options(from, to))?.span.text;
window.watched = (from, to) => {
  const observer = new MutationObserver(() => 0);
  observer.observe(svg, { subtree: true, childList: true, attributes: true, characterData: true });
  drawAt(from, to);
  const records = observer.takeRecords();
  observer.disconnect();
  return ["childList", "attributes"].map((type) => records.filter((record) => record.type === type).length);
};
"""
SHOWN = """() => [...document.querySelectorAll("svg text, svg path, svg g [fill^=url]")]
  .filter((each) => !each.hasAttribute("display"))
  .map((each) => ({ rect: "hatched", path: each.getAttribute("d")?.endsWith("z") ? "▲" : "›" })[each.tagName]
    ?? (each.querySelector("tspan") ?? each).textContent)"""


def drawn(browser_page: BrowserPages, begin: int, end: int) -> Any:
    page = browser_page()
    open_alone(page, LANES)
    page.evaluate(f"() => drawAt({begin}, {end})")
    return page


def test_spans_say_their_state_as_long_as_they_have_room(browser_page: BrowserPages) -> None:
    page = drawn(browser_page, 0, 40)
    assert page.evaluate(SHOWN) == [
        *["12:00:30", "controller-3000", "▲", "leads in epoch 4", "knows no leader in epoch 5"],
        *["controller-3001-of…", "follows 3000 in epoch 4", "▲", "leads in epoch 5"],
        *["partition", "3000→3001", "hatched", "›", "cut 3001→3002"],
    ]
    page.evaluate("() => drawAt(-4000, 40)")
    assert page.evaluate(SHOWN) == [
        *["12:00:30", "controller-3000", "▲"],
        *["controller-3001-of…", "▲"],
        *["partition", "hatched", "›"],
    ]


def test_a_window_that_moves_changes_attributes_only(browser_page: BrowserPages) -> None:
    page = drawn(browser_page, 10, 40)
    nodes, attributes = page.evaluate("() => watched(11, 41)")
    assert (nodes, attributes > 10) == (0, True)
    assert page.evaluate("() => watched(11, 41)") == [0, 0]


def test_a_span_leaves_with_its_time_and_the_others_stay(browser_page: BrowserPages) -> None:
    page = drawn(browser_page, 10, 40)
    page.evaluate("() => { window.before = [...document.querySelectorAll('svg g g g')]; drawAt(21, 51); }")
    gone = "() => before.filter((each) => !each.isConnected).map((each) => each.textContent)"
    assert page.evaluate(gone) == ["leads in epoch 4", "3000→3001"]
    assert page.evaluate("() => [...document.querySelectorAll('svg g g g')].every((each) => before.includes(each))")


def test_a_point_of_the_drawing_names_its_span(browser_page: BrowserPages) -> None:
    page = drawn(browser_page, 0, 40)
    points = [(133, 10), (131 + 300, 10), (140 + 300, 10), (600, 64), (500, 64), (300, 200)]
    assert [page.evaluate(f"() => found({x}, {y}, 0, 40)") for x, y in points] == [
        "leads in epoch 4",
        "leads in epoch 4",
        "knows no leader in epoch 5",
        "cut 3001→3002",
        None,
        None,
    ]
