"""DescribeImage and ListMetadataRecords: past metadata, from one node's disk.

Files are read in a worker thread, one request at a time. An answer holds at most `ANSWER_BYTES`; longer ones are fetched in
parts. An answer never holds anything that this node has not published. The image of the last request is kept until the next one
needs another, so that its parts are not made again.

Secrets are replaced by a keyed digest. The key is made when the process starts and never leaves it. Two digests show if the
values are equal, and nothing else about them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import TypeVar

import msgspec
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.secrets import is_secret
from kraftlab.metadata import codec
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import AnyRecord, Config, RequestOutcome, UserScramCredential
from kraftlab.metadata.snapshot import image_records
from kraftlab.quorum.core.batch import encode_control
from kraftlab.quorum.driver.environment import Threads
from kraftlab.quorum.storage.file_system import FileReader
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.rpc.methods import LocalCall

from .history import NEWEST, History, Moment, NoHistory, while_files_vanish

T = TypeVar("T")

ANSWER_BYTES = 1024 * 1024
RECORDS_PER_BODY = 256
PLACES = 4
"""Places in the log from which reading continues: those who follow it ask for the next batches again and again."""


class TimeTravel:
    """Answers for one node. `newest` returns the end offset that it has published.

    `threads` read; `files` are this machine's by default.
    """

    def __init__(
        self, node_id: int, metadata_log_dir: str, newest: Callable[[], int], threads: Threads, files: FileReader | None = None
    ) -> None:
        self._node_id = node_id
        self._history = History(partition_directory(metadata_log_dir), files, PLACES)
        self._threads = threads
        self._newest = newest
        self._limiter = trio.CapacityLimiter(1)
        self._key = os.urandom(32)
        self._image: MetadataImage | None = None
        self._records: Iterator[AnyRecord] = iter(())
        self._next_record = 0
        """Number of the next record in `_records`, which are those of `_image`."""

    def calls(self) -> Mapping[str, LocalCall]:
        """Return the calls by method of the Admin service."""
        return {"DescribeImage": self.describe_image, "ListMetadataRecords": self.list_records}

    async def describe_image(self, request: admin_pb2.DescribeImageRequest) -> admin_pb2.DescribeImageResponse:
        """Return the response without its header.

        ApiError OFFSET_OUT_OF_RANGE for an image not published yet, or no longer on disk.
        """
        newest = self._newest()
        if request.HasField("offset") and request.HasField("time_ms"):
            raise ApiError(ErrorCode.INVALID_REQUEST, "offset and time_ms are both given; give one of the two")
        offset = request.offset if request.HasField("offset") else newest
        self._check(offset, newest)
        moment = Moment(time_ms=request.time_ms) if request.HasField("time_ms") else Moment(offset=offset)
        if request.first_record < 0:
            expected = "expected 0 or `next_record` of the previous response"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"first_record is {request.first_record}: {expected}")
        exactly = request.HasField("offset")
        return await self._in_thread(lambda: self._describe(moment, newest, request.first_record, exactly))

    async def list_records(self, request: admin_pb2.ListMetadataRecordsRequest) -> admin_pb2.ListMetadataRecordsResponse:
        """Return the response without its header. ApiError OFFSET_OUT_OF_RANGE as `describe_image`."""
        newest = self._newest()
        self._check(request.to_offset, newest)
        if not 0 <= request.from_offset <= request.to_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {request.from_offset} is not before {request.to_offset}; swap the two"
            )
        return await self._in_thread(lambda: while_files_vanish(lambda: self._list(request.from_offset, request.to_offset)))

    def _check(self, offset: int, newest: int) -> None:
        if not 0 <= offset <= newest:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"node {self._node_id} has metadata up to offset {newest}, not {offset}; ask for that or an earlier one",
            )

    async def _in_thread(self, read: Callable[[], T]) -> T:
        try:
            return await self._threads.run_limited(self._limiter, read)
        except NoHistory as error:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"node {self._node_id}: {error}") from None
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"node {self._node_id} cannot read its metadata log: {error}") from None

    def _describe(self, moment: Moment, newest: int, first: int, exactly: bool) -> admin_pb2.DescribeImageResponse:
        image = self._image
        if image is None or moment.offset is None or image.provenance.offset != moment.offset or first != self._next_record:
            image = self._image = self._read(moment, newest, exactly)
            self._records = iter(islice(image_records(image), first, None))
            self._next_record = first
        response = admin_pb2.DescribeImageResponse(
            node_id=self._node_id,
            offset=image.provenance.offset,
            epoch=image.provenance.epoch,
            append_time_ms=image.provenance.append_time_ms,
        )
        size_bytes = 0
        while chunk := list(islice(self._records, RECORDS_PER_BODY)):
            body, count = codec.encode([masked(record, self._key) for record in chunk])
            response.bodies.append(body)
            self._next_record += count
            size_bytes += len(body)
            if size_bytes >= ANSWER_BYTES:
                response.next_record = self._next_record
                return response
        self._image, self._next_record = None, 0
        return response

    def _read(self, moment: Moment, newest: int, exactly: bool) -> MetadataImage:
        """Return the image of the moment. `exactly`: refuse an older image from a disk that does not hold the log so far."""
        found = self._history.at(moment)
        if found.image.provenance.offset > newest:
            found = self._history.at(Moment(offset=newest))
        if found.stopped is not None and found.image.provenance.offset < (newest if moment.offset is None else moment.offset):
            raise NoHistory(found.stopped)
        if exactly:
            assert moment.offset is not None, "an offset was asked for"
            self._raise_if_behind(found.image.provenance.offset, moment.offset)
        return found.image

    def _list(self, start: int, end: int) -> admin_pb2.ListMetadataRecordsResponse:
        response = admin_pb2.ListMetadataRecordsResponse(node_id=self._node_id, next_offset=end)
        if start == end:  # asks for the header, which has the end of the log
            return response
        size_bytes, reached = 0, start
        for step in self._history.steps(Moment(offset=start), Moment(offset=end)):
            if isinstance(step, str):
                raise NoHistory(step)
            header, reached = step.header, step.header.end_offset
            if header.is_control:
                body = encode_control(list(step.control))
            else:
                body = codec.encode([masked(record, self._key) for record in step.records])[0]
            response.batches.add(
                base_offset=header.base_offset,
                epoch=header.epoch,
                append_time_ms=header.append_time_ms,
                record_count=header.record_count,
                is_control=header.is_control,
                body=body,
            )
            size_bytes += len(body)
            if size_bytes >= ANSWER_BYTES and header.end_offset < end:
                response.next_offset = header.end_offset
                return response
        self._raise_if_behind(reached, end)
        return response

    def _raise_if_behind(self, reached: int, wanted: int) -> None:
        """Raise NoHistory if the log on disk does not go on from `reached` with a batch that ends after `wanted`: the published
        records may only be on other voters' disks, or a file is lost.
        """
        if reached < wanted:
            with closing(self._history.steps(Moment(offset=wanted), NEWEST)) as following:
                after = next(following, f"its disk holds the log up to offset {reached} so far; ask again, or another node")
            if isinstance(after, str):
                raise NoHistory(after)


def masked(record: AnyRecord, key: bytes) -> AnyRecord:
    """Return the record with its secrets replaced by digests that nobody can make without the key."""

    def digest(value: bytes) -> bytes:
        return hmac.new(key, value, hashlib.sha256).digest()

    if isinstance(record, UserScramCredential):
        return msgspec.structs.replace(
            record, salt=digest(record.salt), stored_key=digest(record.stored_key), server_key=digest(record.server_key)
        )
    if isinstance(record, RequestOutcome):
        return msgspec.structs.replace(record, answer=digest(record.answer))
    if isinstance(record, Config) and record.value is not None and is_secret(record.resource_type, record.name):
        return msgspec.structs.replace(record, value=digest(record.value.encode()).hex())
    return record
