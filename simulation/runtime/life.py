"""One life of a node: everything that one process has, from its start until nothing of it goes on."""

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


class _Asked:
    """A call that a node has in hand."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.response: Message | None = None

    def answer(self, response: Message | None) -> None:
        if not self.done.is_set():
            self.response = response
            self.done.set()


class Life:
    """One process. `disks` do its work on `media`. It `is_up` once it answers clients."""

    def __init__(
        self, node: RuntimeNode, place: Place, media: Sequence[Medium], disks: Sequence[InlineDisk], number: int
    ) -> None:
        self.node, self.place, self.media, self.disks, self.number = node, place, media, disks, number
        self.context: Context = copy_context()
        """The context of its tasks, by which they are known."""
        self.context.run(OWNER.set, self)
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.is_killed = False
        self.is_up = False
        self._asked: dict[_Asked, None] = {}
        self._nursery: trio.Nursery

    @property
    def is_over(self) -> bool:
        """Killed, or ended by itself."""
        return self.scope.cancel_called or self.ended.is_set()

    async def run(self) -> None:
        """Runs the node until it is killed. Raises the error that ended it, if it ended by itself."""
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
        """The node's response; None if the node ended with the call in hand."""
        asked = _Asked()
        self._asked[asked] = None
        try:
            later = self.node.accept(call, asked.answer)
            if later is not None:
                self.context.run(self._nursery.start_soon, self._finish, later, asked)
            await asked.done.wait()
        finally:
            del self._asked[asked]
        return asked.response

    async def _finish(self, later: Later, asked: _Asked) -> None:
        asked.answer(await later())

    def kill(self) -> None:
        """Ends the node at once: no byte leaves it and no file changes while its tasks unwind."""
        self.is_killed = True
        self.place.die()
        for disk in self.disks:
            disk.die()
        self.scope.cancel()

    def break_calls(self) -> None:
        for asked in tuple(self._asked):
            asked.answer(None)
