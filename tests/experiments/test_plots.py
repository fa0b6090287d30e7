"""Plots and statistics: properties for any numbers, and one small picture to the letter."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.experiments.experiment import Estimate
from kraftlab.experiments.matrix import table
from kraftlab.experiments.plots import HEIGHT, WIDTH, Axis, Bar, Curve, Mark, Point, bars, cdf, curves, steps
from kraftlab.experiments.statistics import mean_of, median_of, quantile, share_of

NUMBERS = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60)


def parsed(markup: str) -> ElementTree.Element:
    """Parse markup: several elements side by side."""
    return ElementTree.fromstring(f"<div>{markup}</div>")


@given(NUMBERS, st.booleans())
def test_a_distribution_stays_inside_of_its_plot_and_rises(numbers: list[float], is_log: bool) -> None:
    drawn = parsed(cdf(Axis("ms", 1, 1_000, is_log), [("<a>", numbers)], [Mark(5, 0.5, "5 & more")]))
    (line,) = drawn.iter("polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in corners)
    assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(corners))
    assert "5 & more" in "".join(drawn.itertext())


@given(NUMBERS)
def test_a_distribution_ends_at_one_at_the_largest_number(numbers: list[float]) -> None:
    points = steps(numbers)
    assert (points[0], points[-1]) == (Point(min(numbers), 0), Point(max(numbers), 1))


@given(st.floats(0.01, 100), st.floats(1.5, 1e5), st.booleans())
def test_an_axis_has_few_ticks_in_order_inside_of_its_range(low: float, factor: float, is_log: bool) -> None:
    axis = Axis("x", low, low * factor, is_log)
    ticks = axis.ticks()
    assert ticks == sorted(ticks) and len(ticks) <= 10
    assert all(0 <= axis.share(tick) <= 1 for tick in ticks)


def test_a_small_curve_is_drawn_like_this() -> None:
    markup = curves(Axis("x", 0, 1), Axis("y", 0, 1), [Curve("c", [Point(0, 0, 0, 0.5), Point(1, 1)])], [Mark(0, 1, "m")])
    assert '<polyline points="46,230 390,12" style="fill:none;stroke:var(--c0);stroke-width:2"/>' in markup
    assert '<line x1="46" x2="46" y1="230" y2="121" style="stroke:var(--c0);stroke-width:1.5"/>' in markup
    assert '<path d="M46 7l5 5l-5 5l-5 -5z" style="fill:var(--card);stroke:var(--ink);stroke-width:1.5"/>' in markup
    assert [element.text for element in parsed(markup).iter("text")][:3] == ["0", "0.2", "0.4"]


def test_a_theory_and_a_published_number_have_the_colour_of_their_curve() -> None:
    line = [Point(0, 0), Point(1, 1)]
    lines = [Curve("a", line), Curve("b", line), Curve("b: derived", line, is_thin=True, of="b")]
    drawn = parsed(curves(Axis("x", 0, 1), Axis("y", 0, 1), lines, [Mark(0, 1, "m", of="b")]))
    colours = [re.findall(r"--c\d", each.attrib["style"]) for each in drawn.iter("polyline")]
    assert colours == [["--c0"], ["--c1"], ["--c1"]]
    assert "--c1" in next(drawn.iter("path")).attrib["style"]


def test_a_curve_without_points_is_left_out_and_the_others_keep_their_colours() -> None:
    markup = cdf(Axis("x", 0, 10), [("none", []), ("some", [1, 2])])
    assert ">none<" not in markup
    assert "--c0" not in markup and "--c1" in markup


def test_a_table_has_the_name_of_its_column_in_each_cell_for_narrow_screens() -> None:
    cells = list(parsed(table(["a", "b<"], [("row", [0.5, "–"])])).iter("td"))
    assert [(cell.attrib["data-of"], cell.text) for cell in cells] == [("a", "0.5"), ("b<", "–")]


def test_bars_have_a_rectangle_an_interval_and_a_published_number_each() -> None:
    drawn = parsed(bars(Axis("ms", 0, 100), [Bar("a", Estimate(50, 40, 60), 70), Bar("b", Estimate(10, 9, 11))]))
    assert [float(bar.attrib["width"]) for bar in drawn.iter("rect")] == [186, 37.2]
    assert len(list(drawn.iter("path"))) == 1


@given(NUMBERS)
def test_an_interval_holds_its_estimate_and_is_the_same_again(numbers: list[float]) -> None:
    for of in (median_of, mean_of):
        ours = of(numbers)
        assert ours == of(list(reversed(numbers)))
        assert min(numbers) * (1 - 1e-9) <= ours.low <= ours.high <= max(numbers) * (1 + 1e-9)


@given(st.integers(1, 500), st.data())
def test_the_interval_of_a_share_holds_it(trials: int, data: st.DataObject) -> None:
    share = share_of(data.draw(st.integers(0, trials)), trials)
    assert 0 <= share.low <= share.value + 1e-12 and share.value - 1e-12 <= share.high <= 1


def test_a_quantile_is_the_smallest_number_that_the_share_does_not_exceed() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0, 0.25, 0.5, 0.51, 1)] == [1, 1, 2, 3, 4]


def test_ninety_five_intervals_of_a_hundred_hold_the_median() -> None:
    draw = Random(1)
    held = sum(ours.low <= 0.5 <= ours.high for ours in (median_of([draw.random() for _ in range(99)]) for _ in range(40)))
    assert 34 <= held <= 40
