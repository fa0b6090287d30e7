"""Kafka's messages by key. A message's module is imported on first use."""

from __future__ import annotations

import functools
import importlib

from .generated import METADATA_RECORDS, REQUESTS, RESPONSES
from .schema import Message

API_VERSIONS = 18


@functools.cache
def request_class(key: int) -> type[Message]:
    """Return the class of an API's requests. KeyError if the key is unknown."""
    return message_class(REQUESTS[key])


@functools.cache
def response_class(key: int) -> type[Message]:
    """Return the class of an API's responses. KeyError if the key is unknown."""
    return message_class(RESPONSES[key])


@functools.cache
def metadata_record_class(number: int) -> type[Message]:
    """Return the class of the metadata log's records of this type. KeyError if the type is unknown."""
    return message_class(METADATA_RECORDS[number])


def message_class(place: str) -> type[Message]:
    """Return the class of a message, from "module.Class"."""
    module, _, name = place.partition(".")
    found: type[Message] = getattr(importlib.import_module(f".generated.{module}", __package__), name)
    return found
