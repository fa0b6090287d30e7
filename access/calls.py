"""Types of a decision on one admin call: the call with its caller's rights, and the admitted part of its request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from kraftlab.metadata.image import MetadataImage

from .authorizer import Rights


class Admission(NamedTuple):
    """`request`: the part that may be carried out. `complete`: adds to the response the entries that were taken out, or facts
    about this caller. `is_void`: nothing is left to carry out, so an empty response is completed.
    """

    request: Any
    complete: Callable[[Any], None] | None = None
    is_void: bool = False


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
