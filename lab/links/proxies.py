"""The proxies of a cluster's nodes, in a thread of their own.

The thread runs one trio loop, which owns all links. Methods may be called from any thread, also from one that runs an event loop:
they wait for a step of the proxies' loop, a matter of microseconds.

Every message between nodes passes through this thread, beside the other threads of this process. While proxies run, Python
switches threads more often than by default; otherwise each message would wait 5 ms for a thread that computes.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import msgspec
import trio

from ..cluster_plan import ClusterError
from .frame_splitter import FrameSplitter, Splitter
from .link import Link
from .proxy import NodeProxy
from .shape import PLAIN, Cut, LinkShape

T = TypeVar("T")
_CALL_TIMEOUT_S = 10.0
_TURN_S = 0.0005


class LinkStatus(msgspec.Struct, frozen=True):
    """A link's rules and its waiting bytes."""

    source: int
    target: int
    cut: str | None
    shape: LinkShape
    waiting_bytes: int


class ShortTurns:
    """The thread switch interval of this process, as long as proxies of any cluster run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before_s = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(_TURN_S, self._before_s))
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._before_s)


short_turns = ShortTurns()


class LinkProxies:
    """The proxies and their thread, which runs until `close`. Each link has a random generator of its own, from `seed`. Splitters
    cut bytes into messages.
    """

    def __init__(self, host: str, seed: int = 0, splitter: Callable[[], Splitter] = FrameSplitter) -> None:
        self._host = host
        self._seed = seed
        self._splitter = splitter
        self._links: dict[tuple[int, int], Link] = {}
        self._proxies: dict[int, NodeProxy] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        short_turns.begin()
        self._thread.start()
        self._ready.wait()

    def add(self, ports: Mapping[int, tuple[int, int]]) -> None:
        """Begin to serve nodes that are not served: (the port that others know, the node's own) by node id."""
        self._call(lambda: self._add(ports))

    def cut(self, pairs: list[tuple[int, int]], cut: Cut) -> None:
        """Cut each (source, target); their shapes stay."""
        self._call(lambda: self._change(pairs, cut, None, False))

    def heal(self, pairs: list[tuple[int, int]], *, drop: bool = False) -> None:
        """Clear the links; held messages are released, or dropped."""
        self._call(lambda: self._change(pairs, None, PLAIN, drop))

    def shape(self, pairs: list[tuple[int, int]], shape: LinkShape) -> None:
        """Shape the links; links that are cut stay cut."""
        self._call(lambda: self._shape(pairs, shape))

    def heal_all(self, *, drop: bool = False) -> None:
        """As `heal`, for all links."""
        self._call(lambda: self._change(list(self._links), None, PLAIN, drop))

    def status(self) -> list[LinkStatus]:
        """The links that are not clear, or still deliver held messages."""
        return self._call(
            lambda: [
                LinkStatus(link.source, link.target, link.cut.value if link.cut else None, link.shape, link.waiting_bytes())
                for _, link in sorted(self._links.items())
                if not link.is_clear or link.waiting_bytes()
            ]
        )

    def close(self) -> None:
        """End every connection, without a reset, and the thread."""
        with contextlib.suppress(ClusterError):
            self._call(self._stop)
        self._thread.join()
        short_turns.end()

    def _stop(self) -> None:
        assert self._nursery is not None, "the loop runs"
        self._nursery.cancel_scope.cancel()

    def _add(self, ports: Mapping[int, tuple[int, int]]) -> None:
        assert self._nursery is not None, "the loop runs"
        for node_id, (port, node_port) in ports.items():
            if node_id not in self._proxies:
                proxy = NodeProxy(node_id, self._host, port, node_port, self._link, self._has_cuts, self._splitter)
                self._proxies[node_id] = proxy
                self._nursery.start_soon(proxy.serve)

    def _change(self, pairs: list[tuple[int, int]], cut: Cut | None, shape: LinkShape | None, drop: bool) -> None:
        for source, target in pairs:
            link = self._link(source, target)
            link.change(cut, link.shape if shape is None else shape, drop=drop)
        for node_id in {node_id for pair in pairs for node_id in pair}:
            self._proxies[node_id].look()

    def _shape(self, pairs: list[tuple[int, int]], shape: LinkShape) -> None:
        for source, target in pairs:
            link = self._link(source, target)
            link.change(link.cut, shape)

    def _link(self, source: int, target: int) -> Link:
        """Return the link; a new one each time if one end is not a node of this cluster."""
        if not {source, target} <= self._proxies.keys():
            return Link(source, target)
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(source, target, self._seed)
        return found

    def _has_cuts(self, node_id: int) -> bool:
        return any(link.cut is not None and node_id in pair for pair, link in self._links.items())

    def _call(self, step: Callable[[], T]) -> T:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(step())
            except BaseException as error:
                done.set_exception(error)

        assert self._token is not None, "the thread has begun"
        try:
            self._token.run_sync_soon(run)
        except trio.RunFinishedError:
            raise ClusterError(
                f"the proxies of the links have ended ({self._failure!r}); start the cluster again"
            ) from self._failure
        return done.result(_CALL_TIMEOUT_S)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._ready.set()
            await trio.sleep_forever()
