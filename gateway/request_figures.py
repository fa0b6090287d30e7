"""Counts and times of the requests of one KAFKA listener, for metrics. The event loop alone changes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kraftlab.common.errors import ErrorCode
from kraftlab.metrics.exposition import Exposition
from kraftlab.metrics.pages import Write
from kraftlab.metrics.recent import RecentValues

NAME = "kafka_network_requestmetrics"
FETCH, OF_CONSUMERS = "Fetch", "FetchConsumer"
"""Kafka counts a fetch twice. Followers fetch by peer frames here, so all that come to this listener are consumers'."""


class _Kind:
    """Figures of the requests of one name. Times are in ms."""

    def __init__(self) -> None:
        self.versions: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.total, self.local, self.send = RecentValues(), RecentValues(), RecentValues()


class RequestFigures:
    """Figures by the name of the request. A name appears with its first request."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def _kind(self, name: str) -> _Kind:
        found = self._kinds.get(name)
        if found is None:
            found = self._kinds[name] = _Kind()
        return found

    def arrived(self, name: str, version: int) -> None:
        self._kind(name).versions[version] += 1

    def answered(self, name: str, codes: Iterable[int]) -> None:
        """Note the error codes in an answer."""
        errors = self._kind(name).errors
        for code in codes:
            errors[code] += 1

    def sent(self, name: str, begun_s: float, answered_s: float, sent_s: float) -> None:
        """Note when a request was there as a whole, when its answer was ready, and when that was sent."""
        kind = self._kind(name)
        kind.total.observe((sent_s - begun_s) * 1000, sent_s)
        kind.local.observe((answered_s - begun_s) * 1000, sent_s)
        kind.send.observe((sent_s - answered_s) * 1000, sent_s)

    def snapshot(self) -> Write:
        """Return what writes the figures, in another thread: it copies what changes."""
        kinds = list(self._kinds.items())

        def write(page: Exposition) -> None:
            for name, kind in _as_kafka_counts(kinds):
                for version, count in kind.versions.copy().items():
                    page.add(f"{NAME}_requests_total", count, request=name, version=version)
                for code, count in kind.errors.copy().items():
                    page.add(f"{NAME}_errors_total", count, request=name, error=_name_of(code))
                page.add(f"{NAME}_totaltimems_count", kind.total.count, request=name)
                for family, values in (
                    ("totaltimems", kind.total),
                    ("localtimems", kind.local),
                    ("responsesendtimems", kind.send),
                ):
                    for label, value in values.quantiles().items():
                        page.add(f"{NAME}_{family}", value, request=name, quantile=label)

        return write


def _as_kafka_counts(kinds: list[tuple[str, _Kind]]) -> Iterator[tuple[str, _Kind]]:
    for name, kind in kinds:
        yield name, kind
        if name == FETCH:
            yield OF_CONSUMERS, kind


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
