"""Pages of a node whose event loop does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlab.metrics import pages
from kraftlab.metrics.answers import Caller
from kraftlab.metrics.event_loop import LoopSilent
from kraftlab.metrics.pages import Pages

CALLER = Caller("127.0.0.1")


class SilentLoop:
    """An event loop that is silent until its release."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def ask(self, function: Any) -> Any:
        self.asked.set()
        self.released.wait(20)
        raise LoopSilent("the event loop has not answered")


@pytest.fixture
def loop() -> Iterator[SilentLoop]:
    loop = SilentLoop()
    yield loop
    loop.released.set()


def test_a_scrape_does_not_wait_forever_for_one_before_it(loop: SilentLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ANSWER_S", 0.1)
    node = Pages(loop, (), lambda: (True, {}), lambda caller: None)  # type: ignore[arg-type]
    first = threading.Thread(target=node.metrics, args=[CALLER])
    first.start()
    assert loop.asked.wait(20)
    assert node.metrics(CALLER) == ("another scrape has not ended for 0 s\n", 503, "text/plain; charset=utf-8", "")
    loop.released.set()
    first.join(20)
    assert node.metrics(CALLER).body == "the event loop has not answered\n"
