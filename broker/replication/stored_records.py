"""Records that go from a segment's file to the wire without being read (sendfile).

Theory of operation. A fetch finds the places of its batches (`PartitionLog.read_or_place`), and its answer promises their bytes.
They are sent when the connection has come to them. A worker thread of the log directory pins the log and sends as much as the
connection takes at once: a cold page makes that thread wait for the disk, never the event loop. Between two such pieces, while
the peer is slow, nothing is held: truncation, deletion and a move wait for one piece at most, never for a peer. Under TLS that
thread reads a piece, and the event loop encrypts and sends it.

So the log may change between pieces. Each piece first makes sure that no records were removed from the log's end since the places
were found, and that the segments are still the log's; otherwise the bytes may be those of another leader by now, and the
connection is closed within the frame: the follower appends nothing of it, and fetches again.

Bytes that the kernel has taken are pages that the file still owns. A truncation right after that may clear the end of such a
page, and an append may write there before the peer has the bytes. Only a deposed leader truncates, and what it appends then is of
a later epoch. The peer notices both: the CRC of a batch covers its records, and `append_as_follower` refuses batches of a later
epoch than the one in which they were fetched.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from kraftlab.records.errors import LogError
from kraftlab.wire.network import Wire
from kraftlab.wire.parts import PartLost

from ..log.disks import Disks
from ..log.log_view import BatchPlaces, Slice
from ..log.partition_log import PartitionLog

PIECE_BYTES_MAX = 256 * 1024
"""Bytes that are read at once for a wire that takes no files."""


class StoredRecords:
    """Whole batches of a log on their way to a peer (`kraftlab.wire.parts.FilePart`)."""

    def __init__(self, log: PartitionLog, placed: BatchPlaces, disks: Disks) -> None:
        self.size_bytes = placed.size_bytes
        self._log = log
        self._placed = placed
        self._disks = disks
        self._left = list(reversed(placed.slices))
        """The slices that are not sent yet, last first."""

    async def send(self, wire: Wire) -> None:
        try:
            while self._left:
                if not wire.takes_files:
                    await _send_all(await self._disks.run(self._log.log_dir, self._read_some), wire)
                    continue
                await self._disks.run(self._log.log_dir, self._send_some, wire.send_from)
                if self._left:
                    await wire.wait_writable()
        except LogError as error:
            raise PartLost(str(error)) from error

    def _read_some(self) -> bytearray:
        """Return the next bytes, PIECE_BYTES_MAX at most."""
        data, filled = bytearray(min(PIECE_BYTES_MAX, sum(each.size_bytes for each in self._left))), 0

        def take(descriptor: int, position: int, size_bytes: int, /) -> int:
            nonlocal filled
            if filled == len(data):
                raise BlockingIOError
            with memoryview(data)[filled : filled + size_bytes] as room:
                count = os.preadv(descriptor, [room], position)
            filled += count
            return count

        self._send_some(take)
        assert filled == len(data), "pieces of a log are whole"
        return data

    def _send_some(self, send_from: Callable[[int, int, int], int]) -> None:
        """Send until everything is sent or the connection takes no more now."""
        with self._log.pin_again(self._placed):
            while self._left:
                segment, position, size_bytes = self._left[-1]
                with segment.file() as descriptor:
                    try:
                        sent = send_from(descriptor, position, size_bytes)
                    except BlockingIOError:
                        return
                    except OSError as error:
                        if error.errno == errno.EIO:
                            raise
                        raise PartLost(f"the connection was lost: {error}") from error
                if not sent:
                    raise PartLost(f"{segment.log_path} ends before position {position}")
                self._left[-1] = Slice(segment, position + sent, size_bytes - sent)
                if sent == size_bytes:
                    self._left.pop()


async def _send_all(data: bytearray, wire: Wire) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[wire.send(rest) :]
        except BlockingIOError:
            await wire.wait_writable()
        except OSError as error:
            raise PartLost(f"the connection was lost: {error}") from error
