"""How long the event loop stands still for one event: far less than peers wait for a sign of life."""

from __future__ import annotations

import random
import time
from pathlib import Path

from kraftlab.quorum.core import ElectionState, ErrorCode, LogView, RaftConfig, RaftNode, ReplicaKey, Voter, VoterSet, batch
from kraftlab.quorum.core.effects import Append, Send
from kraftlab.quorum.core.events import ResponseReceived, TimerFired
from kraftlab.quorum.core.messages import FetchResponse, LeaderView, Records
from kraftlab.quorum.storage import MetadataStore, RealFileSystem


def smallest_batches(max_bytes: int) -> tuple[bytes, int]:
    """As many no-op records as a leader would send at once, and their end offset."""
    batches: list[bytes] = []
    size_bytes, crc = 0, batch.NO_PREVIOUS_CRC
    while size_bytes < max_bytes:
        data, crc = batch.encode(
            b"\x91\x92\x0d\x00",
            base_offset=len(batches),
            epoch=1,
            record_count=1,
            append_time_ms=len(batches),
            high_watermark=0,
            previous_crc=crc,
        )
        batches.append(data)
        size_bytes += len(data)
    return b"".join(batches), len(batches)


def test_a_follower_takes_in_a_whole_answer_of_the_smallest_batches(tmp_path: Path) -> None:
    config = RaftConfig(node_id=1, voters=VoterSet(tuple(Voter(ReplicaKey(node_id), {}) for node_id in (1, 2, 3))))
    data, end_offset = smallest_batches(config.fetch_max_bytes)
    node = RaftNode(config, LogView(), ElectionState(1, 2, None), random.Random(1), 1_000)
    [send] = [effect for effect in node.step(TimerFired(), 1_000) if isinstance(effect, Send)]
    log = MetadataStore.open(RealFileSystem(), str(tmp_path), "pauses", bytes(16)).log
    answer = FetchResponse(ErrorCode.NONE, LeaderView(1, 2), end_offset, 0, 0, Records(data))
    started = time.thread_time()
    [append] = [e for e in node.step(ResponseReceived(send.correlation, 2, answer), 1_001) if isinstance(e, Append)]
    log.append(append.base_offset, append.end_offset, append.data)
    assert time.thread_time() - started < config.fetch_timeout_ms / 1000 / 2
