"""Types of a decision on one admin call: the call with its caller's rights, and the admitted part of its request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage

from .authorizer import Rights
from .refusals import Refuse

Response = TypeVar("Response")


class Admission(NamedTuple):
    """`request`: the part that may be executed. `complete`: adds to the response the entries that were taken out, or facts
    about this caller. `is_void`: nothing is left to execute, so an empty response is completed.
    """

    request: Any
    complete: Callable[[Any], None] | None = None
    is_void: bool = False

    def completed(self, response: Response) -> Response:
        """Complete and return the response to `request`."""
        if self.complete is not None:
            self.complete(response)
        return response


class CallContext(NamedTuple):
    """One call with its caller's rights. `image`: the committed metadata of this node."""

    api: str
    rights: Rights
    request: Any
    image: MetadataImage


Request = TypeVar("Request", bound=Message)
Admit = Callable[[CallContext], Admission]


def without(request: Request, field: str, kept: Sequence[object]) -> Request:
    """Copy the request with only these entries."""
    reduced = type(request)()
    reduced.CopyFrom(request)
    del getattr(reduced, field)[:]
    getattr(reduced, field).extend(kept)
    return reduced


def refusing(request: Message, may: Callable[[Any], bool], refuse: Refuse, text: str = "") -> Admission:
    """Admit the topics that the caller may have; the others follow in the response, as in a refusal of the whole request."""
    kept: list[object] = []
    refused: list[object] = []
    for topic in getattr(request, "topics"):  # noqa: B009 - `Message` does not say so
        (kept if may(topic) else refused).append(topic)
    if not refused:
        return Admission(request)

    def complete(response: object) -> None:
        refuse(without(request, "topics", refused), response, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text))

    return Admission(without(request, "topics", kept), complete, is_void=not kept)
