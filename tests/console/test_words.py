"""Numbers on pages read as those of the command line."""

from __future__ import annotations

import pytest

from kraftlab.common.sizes import bytes_text

from .conftest import BrowserPages, open_alone

pytestmark = pytest.mark.console

SIZES = [None, -1, 0, 1, 1023, 1024, 1536, 20_000, 2**20 - 1, 2**20, 5 * 2**30, 3 * 2**40, 2**60]
SCRIPT = 'import * as dom from "./dom.js"; window.dom = dom;'


def test_sizes_and_plurals(browser_page: BrowserPages) -> None:
    page = browser_page()
    open_alone(page, SCRIPT)
    shown = page.evaluate("(sizes) => sizes.map(dom.bytes)", SIZES)
    assert [each.replace("\u00a0", " ") for each in shown] == [*map(bytes_text, SIZES)]
    plurals = page.evaluate("() => [0, 1, 2, 1000, null].map((each) => dom.plural(each, 'partition'))")
    assert plurals == ["0 partitions", "1 partition", "2 partitions", "1\u202f000 partitions", "? partitions"]
    assert page.evaluate("() => dom.plural(1, 'thing differs', 'things differ')") == "1 thing differs"
