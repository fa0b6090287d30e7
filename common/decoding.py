"""MessagePack from untrusted peers."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """A `msgspec.msgpack.Decoder` that raises MsgspecError for every malformed input.

    msgspec itself raises UnicodeDecodeError for text that is not UTF-8, and RecursionError for deeply nested arrays. Either would
    end a node.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def decode(self, data: bytes | bytearray | memoryview, /) -> T:
        """Return the decoded value. MsgspecError."""
        try:
            return self._decode(data)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None
