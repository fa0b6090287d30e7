"""The pages of the METRICS listener: `/metrics` for Prometheus, `/livez` and `/readyz` for probes.

Theory of operation. A scrape asks the event loop once: every source takes its values there (`snapshot`) and returns a function
that writes them, which then runs in the listener's thread. So the loop pays for values, not for text.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from .answers import Answer, Caller, Page
from .event_loop import EventLoop, LoopSilent
from .exposition import CONTENT_TYPE, Exposition

logger = logging.getLogger("kraftlab.metrics")

Write = Callable[[Exposition], None]
Source = Callable[[], Write]
"""Takes the values of a part of the node, on the event loop; what it returns writes them, in another thread."""
Readiness = tuple[bool, Mapping[str, object]]
"""True if the node is ready, and what a person wants to know of it."""
JSON_TYPE = "application/json"


class AccessRefused(Exception):
    """The caller may not see the metrics. `status` is that of HTTP, `challenge` the login to try."""

    def __init__(self, status: int, reason: str, challenge: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.challenge = challenge


Admit = Callable[[Caller], None]
"""Raises AccessRefused. Called in the listener's thread."""


class Pages:
    """Pages of one node. `ready` is asked on the event loop."""

    def __init__(self, loop: EventLoop, sources: Sequence[Source], ready: Callable[[], Readiness], admit: Admit) -> None:
        self._loop = loop
        self._sources = sources
        self._ready = ready
        self._admit = admit
        self._one_scrape = threading.Lock()
        """Sources keep what they have prepared, so one scrape runs at a time."""
        self._last_scrape_s = 0.0

    def by_path(self) -> dict[str, Page]:
        return {"/metrics": self.metrics, "/livez": self.live, "/readyz": self.ready}

    def metrics(self, caller: Caller) -> Answer:
        """Return the samples of all sources."""
        try:
            self._admit(caller)
        except AccessRefused as refusal:
            return Answer(f"{refusal}\n", refusal.status, challenge=refusal.challenge)
        with self._one_scrape:
            return self._scraped()

    def _scraped(self) -> Answer:
        begun_s = time.perf_counter()
        page = Exposition()
        try:
            began_s, (is_ready, _), writes = self._loop.ask(
                lambda: (time.perf_counter(), self._ready(), [take() for take in self._sources])
            )
            for write in writes:
                write(page)
        except LoopSilent as error:
            return Answer(f"{error}\n", 503)
        except Exception:
            logger.exception("a scrape failed; the node goes on")
            return Answer("the metrics of this node cannot be read; its log has the reason\n", 500)
        page.add("kraftlab_event_loop_lag_seconds", began_s - begun_s)
        page.add("kraftlab_ready", int(is_ready))
        page.add("kraftlab_scrape_duration_seconds", self._last_scrape_s)
        text = page.text()
        self._last_scrape_s = time.perf_counter() - begun_s
        return Answer(text, kind=CONTENT_TYPE)

    def live(self, caller: Caller) -> Answer:
        """Return 200 if the event loop answers."""
        try:
            self._loop.ask(lambda: None)
        except LoopSilent as error:
            return Answer(f"{error}\n", 503)
        return Answer("live\n")

    def ready(self, caller: Caller) -> Answer:
        """Return 200 if the node is ready, 503 with what is missing otherwise."""
        try:
            is_ready, facts = self._loop.ask(self._ready)
        except LoopSilent as error:
            is_ready, facts = False, {"missing": str(error)}
        text = json.dumps({"ready": is_ready, **facts})
        return Answer(f"{text}\n", 200 if is_ready else 503, kind=JSON_TYPE)
