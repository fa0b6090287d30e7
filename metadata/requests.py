"""Answers to admin requests with an id: a retry gets the same answer, and nothing is done twice.

Theory of operation. The answer to a request with an id is a RequestOutcome record after the request's other records, in their
batch or metadata transaction, so both exist or neither does. The image keeps a client's last five answers, by sequence, and a
mark up to which older answers are forgotten. A request at or below that mark without an answer may have been answered once, so
it is refused.

The outcome records alone decide everything, in the order of the log, with the times that they carry (which never go back, see
`next_time_ms`). A batch without an outcome changes nothing and costs nothing. Replaying an outcome drops answers: clients
whose last answer is ten minutes older lose their answers and keep their mark; so do the least recent clients while the answers
take too many bytes; and with too many clients the least recent one is forgotten with its mark. No clock is read, and no record
says that an answer expired. So every replay of the same records, one by one, in portions, or from a snapshot and the rest of
the log, gives the same image. Whether an answer is too old to be given is decided by its own time when it is looked up.

Clients form a list from the least to the most recent, linked by their ids: clients without answers come first. So each step
takes the same time for any number of clients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import immutables
import msgspec

from kraftlab.common.uuids import Uuid, to_text

from .maps import newest, written
from .records import ForgottenRequests, RequestOutcome
from .replay_error import ReplayError

KEPT_PER_CLIENT = 5
"""Number of kept answers; also the number of requests that a client may have in flight, counted from its lowest sequence in
flight.
"""
KEPT_MS = 600_000
CLIENTS_MAX = 10_000
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Largest size of all stored answers."""
COMPRESSED_FROM_BYTES = 512

_PLAIN, _COMPRESSED = b"\0", b"\1"


class AnsweredRequest(msgspec.Struct, frozen=True, gc=False):
    """One answer. `digest` identifies the request, `end_offset` is the offset that the answer reflects, `answer` is `packed`."""

    sequence: int
    digest: bytes
    written_ms: int
    end_offset: int
    answer: bytes

    def is_over(self, now_ms: int) -> bool:
        """Return True if the answer is too old to be given."""
        return now_ms - self.written_ms >= KEPT_MS

    def __repr__(self) -> str:
        return f"AnsweredRequest({self.sequence} at {self.end_offset}, {len(self.answer)} B)"


class RequestingClient(msgspec.Struct, frozen=True, gc=False):
    """A client's answers by rising sequence, all above `forgotten_up_to`, and its neighbours in the list of clients."""

    answered: tuple[AnsweredRequest, ...] = ()
    forgotten_up_to: int = -1
    older: Uuid | None = None
    newer: Uuid | None = None

    @property
    def last_ms(self) -> int:
        return max([answered.written_ms for answered in self.answered], default=0)

    @property
    def kept_bytes(self) -> int:
        return sum(len(answered.answer) for answered in self.answered)

    def get(self, sequence: int) -> AnsweredRequest | None:
        for answered in self.answered:
            if answered.sequence == sequence:
                return answered
        return None

    def is_too_old(self, sequence: int) -> bool:
        """Return True if the answer to that request may have been forgotten."""
        if self.get(sequence) is not None:
            return False
        is_behind = len(self.answered) >= KEPT_PER_CLIENT and sequence < self.answered[0].sequence
        return is_behind or sequence <= self.forgotten_up_to


class RequestsImage(msgspec.Struct, frozen=True):
    """All clients. `oldest_kept` is the least recent one with answers; all later ones have answers too."""

    clients: immutables.Map[Uuid, RequestingClient] = immutables.Map()
    oldest: Uuid | None = None
    newest: Uuid | None = None
    oldest_kept: Uuid | None = None
    kept_bytes: int = 0

    def get(self, client_id: Uuid) -> RequestingClient | None:
        return self.clients.get(client_id)

    def in_order(self) -> Iterator[tuple[Uuid, RequestingClient]]:
        """Clients from the least to the most recent."""
        client_id = self.oldest
        while client_id is not None:
            client = self.clients[client_id]
            yield client_id, client
            client_id = client.newer

    def next_time_ms(self, now_ms: int) -> int:
        """Time for an outcome that is written now. Clocks of controllers differ, but the log's times must not go back."""
        return now_ms if self.newest is None else max(now_ms, self.clients[self.newest].last_ms)


class RequestsDelta:
    """Answers while records are replayed on `image`."""

    def __init__(self, image: RequestsImage) -> None:
        self.image = image
        self._changed: dict[Uuid, RequestingClient | None] = {}
        self._count = len(image.clients)
        self._oldest, self._newest, self._oldest_kept = image.oldest, image.newest, image.oldest_kept
        self._kept_bytes = image.kept_bytes

    def answer(self, record: RequestOutcome, end_offset: int) -> None:
        """ReplayError if that request was answered already, or may have been."""
        client_id = record.client_id
        client = self._as_newest(client_id)
        answers, sequence = client.answered, record.sequence
        is_next = bool(answers) and answers[-1].sequence < sequence and client.forgotten_up_to < sequence
        if not is_next and (client.get(sequence) is not None or client.is_too_old(sequence)):
            raise ReplayError(f"request {record.sequence} of client {to_text(client_id)} was answered already")
        answered = AnsweredRequest(
            record.sequence,
            record.digest,
            record.written_ms,
            end_offset if record.end_offset is None else record.end_offset,
            record.answer,
        )
        kept = [*answers, answered]
        if not is_next:
            kept.sort(key=lambda one: one.sequence)
        forgotten_up_to = client.forgotten_up_to
        self._kept_bytes += len(answered.answer)
        if len(kept) > KEPT_PER_CLIENT:
            dropped = kept.pop(0)
            forgotten_up_to = dropped.sequence
            self._kept_bytes -= len(dropped.answer)
        self._changed[client_id] = msgspec.structs.replace(client, answered=tuple(kept), forgotten_up_to=forgotten_up_to)
        if self._oldest_kept is None:
            self._oldest_kept = client_id
        self._forget_answers(record.written_ms)
        while self._count > CLIENTS_MAX and self._oldest is not None:
            self._forget_client(self._oldest)

    def forgotten(self, record: ForgottenRequests) -> None:
        """Set a client's mark from a snapshot. ReplayError if the client is known."""
        client = self._as_newest(record.client_id)
        if client.answered or client.forgotten_up_to >= 0:
            raise ReplayError(f"client {to_text(record.client_id)} is known already")
        self._changed[record.client_id] = msgspec.structs.replace(client, forgotten_up_to=record.up_to)

    def apply(self) -> RequestsImage:
        clients = written(self.image.clients, self._changed)
        return RequestsImage(clients, self._oldest, self._newest, self._oldest_kept, self._kept_bytes)

    def _get(self, client_id: Uuid) -> RequestingClient | None:
        return newest(self.image.clients, self._changed, client_id)

    def _known(self, client_id: Uuid) -> RequestingClient:
        client = self._get(client_id)
        assert client is not None, "the list of clients holds those that are known"
        return client

    def _forget_answers(self, now_ms: int) -> None:
        """Drop answers of the least recent clients, while these are too old or take too many bytes. The newest client keeps
        its answers.
        """
        while self._oldest_kept is not None and self._oldest_kept != self._newest:
            client_id = self._oldest_kept
            client = self._known(client_id)
            if now_ms - client.last_ms < KEPT_MS and self._kept_bytes <= KEPT_BYTES_MAX:
                return
            self._kept_bytes -= client.kept_bytes
            self._oldest_kept = client.newer
            self._changed[client_id] = msgspec.structs.replace(client, answered=(), forgotten_up_to=client.answered[-1].sequence)

    def _forget_client(self, client_id: Uuid) -> None:
        client = self._known(client_id)
        self._unlink(client_id, client)
        self._changed[client_id] = None
        self._kept_bytes -= client.kept_bytes
        self._count -= 1

    def _as_newest(self, client_id: Uuid) -> RequestingClient:
        """Return the client, known or new, moved to the end of the list."""
        client = self._get(client_id)
        if client is None:
            client = RequestingClient()
            self._count += 1
        elif self._newest == client_id:
            return client
        else:
            self._unlink(client_id, client)
        before = self._newest
        client = self._changed[client_id] = msgspec.structs.replace(client, older=before, newer=None)
        if before is None:
            self._oldest = client_id
        else:
            self._changed[before] = msgspec.structs.replace(self._known(before), newer=client_id)
        self._newest = client_id
        return client

    def _unlink(self, client_id: Uuid, client: RequestingClient) -> None:
        older, newer = client.older, client.newer
        if older is None:
            self._oldest = newer
        else:
            self._changed[older] = msgspec.structs.replace(self._known(older), newer=newer)
        if newer is None:
            self._newest = older
        else:
            self._changed[newer] = msgspec.structs.replace(self._known(newer), older=older)
        if self._oldest_kept == client_id:
            self._oldest_kept = newer


def request_records(requests: RequestsImage) -> Iterator[ForgottenRequests | RequestOutcome]:
    """The snapshot's records, from the least to the most recent client."""
    for client_id, client in requests.in_order():
        if client.forgotten_up_to >= 0:
            yield ForgottenRequests(0, client_id, client.forgotten_up_to)
        for answered in client.answered:
            yield RequestOutcome(
                0, client_id, answered.sequence, answered.digest, answered.written_ms, answered.answer, answered.end_offset
            )


def packed(answer: bytes) -> bytes:
    """An answer as it is stored: long ones are compressed."""
    return _PLAIN + answer if len(answer) < COMPRESSED_FROM_BYTES else _COMPRESSED + zlib.compress(answer, 1)


def unpacked(stored: bytes) -> bytes:
    return stored[1:] if stored[:1] == _PLAIN else zlib.decompress(stored[1:])
