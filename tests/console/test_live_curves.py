"""A live curve is drawn in the colours of the theme, said in words, and has gaps where nobody looked."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import BrowserPages, assert_accessible, open_alone

pytestmark = pytest.mark.console

CURVE = """
import { curve } from "./curves.js";
const section = document.createElement("section");
document.querySelector("main").append(section);
window.begin = new Date(2026, 0, 1, 12).getTime();
const series = [{ label: "3001", colour: "c0" }, { label: "3002", colour: "c1" }];
window.lag = curve(section, { title: "Lag", unit: "records", seconds: 90, series });
const pixels = () => {
  const canvas = document.querySelector("canvas"), copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: data.length / 4 }, (_, place) => data.slice(place * 4, place * 4 + 4));
};
window.count = (token) => {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(token);
  const wanted = colour.match(/[0-9a-f]{2}/g).map((each) => parseInt(each, 16));
  return pixels().filter((pixel) => pixel[3] && wanted.every((each, place) => Math.abs(pixel[place] - each) < 3)).length;
};
window.painted = () => { const all = pixels(); return all.filter((pixel) => pixel[3]).length / all.length; };
window.frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
"""
PUSH = "() => { for (let s = 0; s < 90; s += 1) lag.push(begin + s * 1000, [1500, s < 60 ? 40 : null]); return frame(); }"


def opened(browser_page: BrowserPages, **options: Any) -> Any:
    page = browser_page(**options)
    open_alone(page, CURVE)
    page.evaluate(PUSH)
    return page


def label(page: Any) -> str:
    return str(page.get_by_role("img").get_attribute("aria-label"))


def test_the_newest_values_are_said_and_in_a_table(browser_page: BrowserPages) -> None:
    page = opened(browser_page)
    assert label(page) == "Lag, records, at 12:01:29: 3001 1.5K, 3002 unknown."
    page.get_by_text("Newest values: Lag").click()
    assert page.get_by_role("table").inner_text().split() == ["At", "12:01:29", "curve", "records", "3001", "1.5K", "3002", "–"]
    page.evaluate("() => lag.push(begin + 90_000, [0, 7])")
    assert label(page) == "Lag, records, at 12:01:30: 3001 0, 3002 7."


def test_a_curve_ends_where_nobody_looked(browser_page: BrowserPages) -> None:
    page = opened(browser_page)
    before = page.evaluate("() => count('--c1')")
    page.evaluate("() => { for (let s = 60; s < 90; s += 1) lag.push(begin + (s + 30) * 1000, [1500, null]); return frame(); }")
    after = page.evaluate("() => count('--c1')")
    assert 0.3 < after / before < 0.7, "half of the curve has left the window"


def test_samples_in_quick_succession_leave_the_whole_window_in_sight(browser_page: BrowserPages) -> None:
    page = opened(browser_page)
    before = page.evaluate("() => count('--c1')")
    page.evaluate("() => { for (let ms = 0; ms < 5000; ms += 1) lag.push(begin + 89_000 + ms, [1500, null]); return frame(); }")
    assert page.evaluate("() => count('--c1')") > before * 0.5


@pytest.mark.parametrize("width", [1300, 360])
def test_a_fault_is_shaded_and_said(browser_page: BrowserPages, width: int) -> None:
    page = opened(browser_page, width=width)
    before = page.evaluate("() => painted()")
    page.evaluate(
        "() => lag.shade([{ from_ms: begin + 20_000, to_ms: begin + 70_000, about: 'cut' },"
        " { from_ms: 0, to_ms: 1, about: 'old' }])"
    )
    page.evaluate("() => frame()")
    assert label(page).endswith(" Faults shown: cut.")
    assert page.evaluate("() => painted()") - before > 0.25
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")


def test_another_theme_draws_the_curve_in_its_colours(browser_page: BrowserPages) -> None:
    page = opened(browser_page, color_scheme="dark")
    assert page.evaluate("() => count('--c0')") > 100
    page.evaluate("() => { document.documentElement.dataset.theme = 'light'; return frame(); }")
    assert page.evaluate("() => count('--c0')") > 100


def test_a_curve_grows_and_shrinks_with_its_page(browser_page: BrowserPages) -> None:
    page = opened(browser_page, width=1000)
    room = page.locator("canvas").bounding_box()
    page.set_viewport_size({"width": 400, "height": 900})
    page.evaluate("() => frame()")
    assert (room["width"], page.locator("canvas").bounding_box()["width"]) == (902, 346)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_a_curve_is_accessible(browser_page: BrowserPages, color_scheme: str) -> None:
    page = opened(browser_page, color_scheme=color_scheme)
    page.get_by_text("Newest values: Lag").click()
    assert_accessible(page)
    page.evaluate("() => lag.destroy()")
    assert page.locator("figure").count() == 0
