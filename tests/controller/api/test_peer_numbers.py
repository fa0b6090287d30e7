"""All calls between nodes arrive at one port: their numbers must not collide."""

from __future__ import annotations

from kraftlab.metadata.peer_rpc import Api
from kraftlab.quorum.core.messages import API_OF


def test_no_call_has_the_number_of_another() -> None:
    others = [number for name, number in vars(Api).items() if name.isupper()]
    assert len(others) == len({*others}) > 10
    assert not {*others} & {*API_OF.values()}
