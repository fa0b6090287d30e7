"""Decode every request and response with every count and length replaced, in a process of its own: a count that is believed would
end it. Run as `python -m`, it prints what it found as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kraftlab.gateway.client_codec import MalformedResponse, decode_response
from kraftlab.gateway.codec import MalformedRequest, decode_request
from kraftlab.messages.catalog import response_class

if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0])
    import whole_messages as messages
else:
    from . import whole_messages as messages

ADDRESS_SPACE_BYTES = 1 << 30
SLOW_S = 1.0


def sweep(all_versions: bool) -> dict[str, Any]:
    """Return the number of messages that were decoded and refused, and the faults: other errors, and what took long."""
    found: dict[str, Any] = {"read": 0, "refused": 0, "faults": []}
    for key, version in messages.offered(all_versions=all_versions):
        _try(messages.request(key, version), decode_request, found)
        _try(messages.response(key, version), partial(_response, key, version), found)
    return found


def _response(key: int, version: int, frame: bytes) -> object:
    return decode_response(frame, response_class(key), version)


def _try(message: messages.Message, decode: Callable[[bytes], object], found: dict[str, Any]) -> None:
    decode(bytes(message.data))
    for place in message.places:
        if place.kind not in messages.COUNTS:
            continue
        for count, frame in messages.lies(message, place):
            begun = time.perf_counter()
            try:
                decode(frame)
                found["read"] += 1
            except (MalformedRequest, MalformedResponse):
                found["refused"] += 1
            except BaseException as error:
                found["faults"].append(f"{place} = {count}: {type(error).__name__}: {error}")
            if time.perf_counter() - begun > SLOW_S:
                found["faults"].append(f"{place} = {count}: took {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    print(json.dumps(sweep(sys.argv[1] == "all")))
