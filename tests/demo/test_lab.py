"""Waiting for something to be so in a cluster of which parts may be down."""

from __future__ import annotations

import pytest

from kraftlab.client import ClusterUnreachable
from kraftlab.demo.lab import StoryError, wait_until


def test_a_node_that_cannot_be_asked_yet_is_asked_again() -> None:
    asked = iter((ClusterUnreachable("it starts"), None))

    def is_there() -> bool:
        error = next(asked)
        if error:
            raise error
        return True

    assert wait_until("it is there", is_there) < 10


def test_what_was_not_so_in_time_is_named_with_who_could_not_be_asked() -> None:
    def is_there() -> bool:
        raise ClusterUnreachable("nobody at 127.0.0.1:1")

    with pytest.raises(StoryError, match=r"it is there: not within 0 s: nobody at 127\.0\.0\.1:1"):
        wait_until("it is there", is_there, timeout_s=0)
    with pytest.raises(StoryError, match=r"it is there: not within 0 s$"):
        wait_until("it is there", lambda: False, timeout_s=0)
