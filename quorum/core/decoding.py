"""MessagePack that a stranger may have written."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """`msgspec.msgpack.Decoder`, but whatever is wrong with the bytes is a MsgspecError. That one raises UnicodeDecodeError for
    text that is none, and RecursionError for a few kilobytes of arrays within arrays: either would end a node that heard it.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def decode(self, data: bytes | bytearray | memoryview, /) -> T:
        """MsgspecError."""
        try:
            return self._decode(data)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None
