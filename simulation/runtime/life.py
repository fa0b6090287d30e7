"""One life of a node: everything that one process has, from its start until all its tasks have ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context

import trio
from google.protobuf.message import Message

from kraftlab.rpc.server import Call, Later

from .held_tasks import OWNER
from .inline_disk import InlineDisk, Medium
from .memory_network import Place
from .nodes import RuntimeNode


class _OpenCall:
    """A call that a node is serving."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.response: Message | None = None

    def answer(self, response: Message | None) -> None:
        if not self.done.is_set():
            self.response = response
            self.done.set()


class Life:
    """One process. `disks` do its work on `media`. `is_up` is True once it answers clients."""

    def __init__(
        self, node: RuntimeNode, place: Place, media: Sequence[Medium], disks: Sequence[InlineDisk], number: int
    ) -> None:
        self.node, self.place, self.media, self.disks, self.number = node, place, media, disks, number
        self.context: Context = copy_context()
        """The context of its tasks, which identifies them."""
        self.context.run(OWNER.set, self)
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.is_killed = False
        self.is_up = False
        self._open_calls: dict[_OpenCall, None] = {}
        self._nursery: trio.Nursery

    @property
    def is_over(self) -> bool:
        """True if the life was killed or has ended by itself."""
        return self.scope.cancel_called or self.ended.is_set()

    async def run(self) -> None:
        """Run the node until it is killed. Raises the error of a node that ends by itself."""
        try:
            with self.scope:
                async with trio.open_nursery() as self._nursery:
                    await self.node.live(self._nursery, self._opened)
        finally:
            self.is_up = False
            self.place.die()
            self.break_calls()
            self.node.die()
            for medium in self.media:
                medium.crash(power_cut=False)

    def _opened(self) -> None:
        self.is_up = True

    async def serve(self, call: Call) -> Message | None:
        """Return the node's response; None if the node ended during the call."""
        open_call = _OpenCall()
        self._open_calls[open_call] = None
        try:
            later = self.node.accept(call, open_call.answer)
            if later is not None:
                self.context.run(self._nursery.start_soon, self._finish, later, open_call)
            await open_call.done.wait()
        finally:
            del self._open_calls[open_call]
        return open_call.response

    async def _finish(self, later: Later, open_call: _OpenCall) -> None:
        open_call.answer(await later())

    def kill(self) -> None:
        """End the node at once: no byte leaves it and no file changes while its tasks unwind."""
        self.is_killed = True
        self.place.die()
        for disk in self.disks:
            disk.die()
        self.scope.cancel()

    def break_calls(self) -> None:
        for open_call in tuple(self._open_calls):
            open_call.answer(None)
