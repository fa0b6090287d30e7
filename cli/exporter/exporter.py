"""Looks at a cluster when somebody scrapes, and keeps what it saw for a while.

Theory of operation. A scrape looks at the cluster if the last look began at least `interval_s` ago; scrapes that come meanwhile
wait for that look. So the cluster answers one look an interval, however many scrapers there are, and none without scrapers. All
samples of a page are of one look. After a look that failed, a page has the exporter's own samples alone, and the next look begins
with a new client: the cluster may be another one by now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.cluster_offsets import ClusterOffsets, look
from kraftlab.common.errors import ApiError
from kraftlab.common.version import VERSION
from kraftlab.metrics.answers import Answer, Caller, Page
from kraftlab.metrics.exposition import CONTENT_TYPE, Exposition

from ..output import CommandFailed
from .families import write

LOOK_TIMEOUT_MS = 6000
"""Time limit of a look, beside finding the cluster: Prometheus waits for ten seconds."""


class Exporter:
    """Pages about the cluster that `connect` returns a client of. `say` takes a line for the log."""

    def __init__(
        self,
        connect: Callable[[], AdminClient],
        is_topic: Callable[[str], object],
        is_group: Callable[[str], object],
        interval_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._is_topic = is_topic
        self._is_group = is_group
        self._interval_s = interval_s
        self._say = say
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._text: str | None = None
        self._looked_s = 0.0
        self._silent: frozenset[int] = frozenset()
        self.is_up = True
        """True unless the last look failed."""

    def pages(self) -> dict[str, Page]:
        return {"/metrics": self._metrics, "/livez": lambda caller: Answer("live\n")}

    def _metrics(self, caller: Caller) -> Answer:
        return Answer(self.text(), kind=CONTENT_TYPE)

    def text(self) -> str:
        """Return the metrics, at most `interval_s` old."""
        with self._lock:
            if self._text is None or time.monotonic() - self._looked_s >= self._interval_s:
                self._looked_s = time.monotonic()
                seen = self._look()
                self._text = _page(seen, time.monotonic() - self._looked_s)
            return self._text

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _look(self) -> ClusterOffsets | None:
        try:
            if self._client is None:
                self._client = self._connect()
            seen = look(self._client.group_calls(LOOK_TIMEOUT_MS), self._is_topic, self._is_group)
        except (ApiError, ClusterUnreachable, CommandFailed) as error:
            with suppress(OSError):
                self.close()
            if self.is_up:
                self._say(f"the cluster cannot be read, and metrics lack it until it can: {error}")
            self.is_up = False
            return None
        if not self.is_up:
            self._say("the cluster can be read again")
        self.is_up = True
        for broker in sorted(seen.silent.keys() - self._silent):
            self._say(f"metrics lack groups and partitions of broker {broker} at {seen.brokers[broker]}: {seen.silent[broker]}")
        self._silent = frozenset(seen.silent)
        return seen


def _page(seen: ClusterOffsets | None, took_s: float) -> str:
    page = Exposition()
    page.add("kraftlab_build_info", 1, version=VERSION)
    page.add("kraftlab_exporter_up", int(seen is not None))
    page.add("kraftlab_exporter_look_duration_seconds", took_s)
    if seen is not None:
        page.add("kraftlab_exporter_silent_brokers", len(seen.silent))
        write(page, seen)
    return page.text()
