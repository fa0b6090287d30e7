"""A request of this node to its own core, which answers it as it answers peers."""

from __future__ import annotations

import trio

from ..core.errors import ErrorCode
from ..core.messages import LeaderView, Response, VoterChangeResponse


class OwnRequest:
    """Waited for by one task."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._answer: VoterChangeResponse | None = None

    def answer(self, response: Response) -> None:
        assert isinstance(response, VoterChangeResponse), f"{response!r} answers no change of voters"
        self._answer = response
        self._done.set()

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.answer(VoterChangeResponse(code, LeaderView(0), message))

    async def wait(self) -> VoterChangeResponse:
        await self._done.wait()
        assert self._answer is not None
        return self._answer
