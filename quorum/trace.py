"""A node's core transitions as NDJSON, one JSON object per line: for people with `jq`, and to check against a specification.

Theory of operation. `TraceWriter` belongs to one node and gets every step: the event and its effects. It walks the effects in
order and writes a line for each that changes Raft's variables: the state, the log's end, the commit point, stored data, and sent
messages. Each line holds the event and the node's variables *after* it, so that two lines are a transition, like the trace points
of etcd's raft. It knows neither sockets nor clocks: the simulator writes virtual microseconds, a real node those of its wall
clock. `kraftlab trace check` explains every line by an action of the TLA+ specification (quorum/spec).

Version 1 of the format, fields in this order; those with "?" only where they make sense::

    v         1
    time_us   time of the event
    node      the node's id
    event     one of EVENTS
    state     unattached, prospective, candidate, leader, follower or resigned
    epoch, leader, voted    the epoch, its leader and this node's vote in it (-1: unknown)
    end, hw   the end of the log, and the high watermark (-1: unknown)
    durable   everything below this offset is on this node's disk
    config    the voters' ids
    from?     the state before, with event "state"
    peer?     the other node of a message
    message?  the message's kind, with "send", "reply", "receive" and "answer"
    about?    the message itself, as the transcript shows it
    offset?   start of an append, cut of a truncation, start of a log that is installed or cleaned, offset of a read
    step      number of the step of this process; lines of one step follow each other
    m?        with messages: what the specification knows of the message, see `content_of`
    asked?    with "reply" and "answer": the same of the request
    awaited?  with "answer": true if the node still waits for it
    ignored?  with "reply", true if the request was invalid, for another disk, or the node is about to end
    batches?  with "append": [epoch, end, crc, voters] of each batch; voters is null unless it changes them
    id?       with "append", "truncate", "install": number of the operation; with "durable": of the newest completed one.
              With "store" and "stored": version of the election state. With "ask" and "ready": the read
    why?      with "state": the reason
    start?, crc?, directory?, repairing?    with "boot": start of the log, crc of its last batch, id of the directory, and true if
              a damaged log is being repaired

Within a version the format only grows: readers must ignore fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.common.errors import ErrorCode

from .core.batch import KRaftVoters, check_all
from .core.effects import (
    Append,
    Apply,
    CleanLog,
    Effects,
    InstallSnapshot,
    ReadIndexReady,
    ReadIndexRefused,
    Reply,
    Send,
    StoreElectionState,
    Trace,
    Truncate,
)
from .core.events import (
    ElectionStateStored,
    Event,
    ReadIndexAsked,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    StorageCompleted,
)
from .core.local_log import control_of
from .core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Records,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from .core.raft_node import RaftNode
from .core.states import Follower

VERSION = 1
EVENTS = {
    "boot": "the node starts; the variables are those that its disk holds",
    "receive": "a request arrives",
    "answer": "the answer to one of the node's own requests arrives",
    "state": "another state, or another epoch of the same state",
    "gone": "a follower learns that its leader has resigned, or that its process has ended",
    "append": "batches are appended to the log, not durable yet",
    "truncate": "the log is cut",
    "install": "a snapshot replaces the log, which ends at `offset` now",
    "clean": "the log begins at `offset` from now on, after a snapshot",
    "commit": "the high watermark rises",
    "store": "the election state goes to the disk",
    "stored": "the election state is on the disk",
    "durable": "the log is on the disk up to `durable`",
    "send": "a request is handed to the network, which may have to wait for the disk",
    "reply": "an answer is handed to the network, likewise",
    "ask": "a linearizable read begins at the leader",
    "ready": "a linearizable read may be answered from `offset`",
}
"""Every event and its meaning."""


Content = dict[str, object]
_IGNORED = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_VOTER_KEY, ErrorCode.BROKER_NOT_AVAILABLE)


def content_of(message: Request | Response, asked: Request | None = None) -> Content:
    """Return what the specification knows of a message: type, epoch and more. `asked` is the request that a response answers.

    A request that consensus decides nothing by is "Other". A response that only names epoch and leader is a "View".
    """
    if isinstance(message, VoteRequest):
        pre_vote, last_epoch, end = message.pre_vote, message.last_epoch, message.end_offset
        return {"type": "Vote", "epoch": message.epoch, "isPreVote": pre_vote, "lastEpoch": last_epoch, "end": end}
    if isinstance(message, BeginQuorumEpochRequest | EndQuorumEpochRequest):
        return {"type": "Begin" if isinstance(message, BeginQuorumEpochRequest) else "End", "epoch": message.epoch}
    if isinstance(message, FetchRequest):
        position = {"offset": message.fetch_offset, "lastEpoch": message.last_fetched_epoch}
        return {"type": "Fetch", "epoch": message.epoch, **position, "round": message.read_round}
    if isinstance(message, FetchSnapshotRequest):
        return {"type": "FetchSnapshot", "epoch": message.epoch}
    if isinstance(message, Request):
        return {"type": "Other"}
    view = {"epoch": message.leader.epoch, "leader": message.leader.leader_id}
    if message.error is ErrorCode.NONE:
        if isinstance(message, VoteResponse) and message.granted:
            return {"type": "VoteReply", **view, "isPreVote": message.pre_vote}
        if isinstance(message, FetchResponse) and isinstance(asked, FetchRequest):
            position = {"offset": asked.fetch_offset, "lastEpoch": asked.last_fetched_epoch}
            known = {"hw": message.high_watermark, "round": message.read_round}
            return {"type": "FetchReply", **view, **position, **known, **_outcome(message)}
        if isinstance(message, FetchSnapshotResponse):
            return {"type": "SnapshotReply", **view, "snapshot": list(message.snapshot)}
    return {"type": "View", **view}


def _outcome(response: FetchResponse) -> Content:
    outcome = response.outcome
    if isinstance(outcome, Records):
        return {"outcome": "records", "data": batches_of(outcome.data) if outcome.data else []}
    if isinstance(outcome, Diverging):
        return {"outcome": "diverging", "data": [outcome.epoch, outcome.end_offset]}
    return {"outcome": "snapshot", "data": []}


def batches_of(data: bytes) -> list[tuple[int, int, int, tuple[int, ...] | None]]:
    """Return epoch, end offset, crc and voters of each batch. Voters None: the batch does not name them."""
    headers = check_all(data)
    named = {at: record.voters.ids() for at, record in control_of(headers, data) if isinstance(record, KRaftVoters)}
    found: list[tuple[int, int, int, tuple[int, ...] | None]] = []
    for header in headers:
        voters = [ids for at, ids in named.items() if header.base_offset <= at < header.end_offset]
        found.append((header.epoch, header.end_offset, header.crc, voters[-1] if voters else None))
    return found


class TraceWriter:
    """Writes lines about one incarnation of one node. `write` gets whole lines, each with its newline.

    Create it before the node's first step, and pass it every step after `RaftNode.step` has returned.
    """

    def __init__(self, write: Callable[[str], object], node: RaftNode, now_us: int) -> None:
        self._write = write
        self._node = node
        self._encode = msgspec.json.Encoder().encode
        self.inbound: dict[int, tuple[int, Request]] = {}
        """Sender and request by the token of the reply."""
        self._sent: dict[int, tuple[Request, object]] = {}
        """Requests without an answer, and the state object that waits for it."""
        self._state_object: object = node.quorum.state
        self._hears = False
        """True if it follows a leader that has answered."""
        self._step = 0
        election = node.election
        self._state = node.state_name
        self._epoch = election.epoch
        self._leader = election.leader_id
        self._voted = election.voted_key.node_id if election.voted_key is not None else -1
        self._end = node.log_end_offset
        self._high_watermark = node.high_watermark
        self._durable = node.durable_end_offset
        view = node.log
        self._line(
            now_us,
            "boot",
            start=view.start_offset,
            crc=view.last_crc,
            directory=node.config.directory_id.hex(),
            repairing=node.is_repairing,
        )

    def step(self, now_us: int, event: Event, effects: Effects) -> None:
        """Write the lines of one step of the node."""
        self._step += 1
        if isinstance(event, RequestReceived):
            sender = event.sender.node_id
            self.inbound[event.correlation] = sender, event.request
            self._message(now_us, "receive", sender, event.request)
        elif isinstance(event, RequestAbandoned):
            self.inbound.pop(event.correlation, None)
        elif isinstance(event, ResponseReceived):
            self._answer(now_us, event)
        elif isinstance(event, RequestFailed):
            self._sent.pop(event.correlation, None)
        elif isinstance(event, ElectionStateStored):
            self._line(now_us, "stored", id=event.version)
        elif isinstance(event, StorageCompleted):
            self._durable = self._node.durable_end_offset
            self._line(now_us, "durable", id=event.append_id)
        elif isinstance(event, ReadIndexAsked) and not isinstance(next(iter(effects), None), ReadIndexRefused):
            self._line(now_us, "ask", id=event.token)  # one that is refused later in the step has begun all the same
        for effect in effects:
            self._effect(now_us, effect)
        state = self._node.quorum.state
        hears = isinstance(state, Follower) and state.has_fetched
        if state is self._state_object and self._hears and not hears:
            self._line(now_us, "gone")
        self._state_object, self._hears = state, hears

    def _answer(self, now_us: int, event: ResponseReceived) -> None:
        asked, waiting = self._sent.pop(event.correlation, (None, None))
        is_awaited = asked is not None and waiting is self._state_object
        about_request = content_of(asked) if asked is not None else None
        self._message(now_us, "answer", event.source, event.response, asked, awaited=is_awaited, asked=about_request)

    def _effect(self, now_us: int, effect: Any) -> None:
        if isinstance(effect, Trace):
            move = effect.move
            if move is not None:
                self._state, self._epoch, self._leader, self._voted = move.target, move.epoch, move.leader_id, move.voted_id
                why = effect.text.rpartition(": ")[2]
                self._line(now_us, "state", **({"from": move.source} if move.source else {}), why=why)
        elif isinstance(effect, Append):
            self._end = effect.end_offset
            self._line(now_us, "append", offset=effect.base_offset, id=effect.append_id, batches=batches_of(effect.data))
        elif isinstance(effect, Truncate):
            self._end = effect.to_offset
            self._durable = min(self._durable, effect.to_offset)
            self._line(now_us, "truncate", offset=effect.to_offset, id=effect.append_id)
        elif isinstance(effect, InstallSnapshot):
            self._end = effect.id.offset
            self._durable = min(self._durable, max(0, self._high_watermark))
            self._line(now_us, "install", offset=effect.id.offset, id=effect.append_id)
        elif isinstance(effect, CleanLog):
            self._line(now_us, "clean", offset=effect.start.offset)
        elif isinstance(effect, Apply):
            self._high_watermark = effect.high_watermark
            self._line(now_us, "commit")
        elif isinstance(effect, StoreElectionState):
            self._line(now_us, "store", id=effect.version)
        elif isinstance(effect, Send):
            self._sent[effect.correlation] = effect.request, self._node.quorum.state
            self._message(now_us, "send", effect.destination, effect.request)
        elif isinstance(effect, Reply):
            sender, request = self.inbound.pop(effect.correlation, (-1, None))
            about_request = content_of(request) if request is not None else None
            more = {"ignored": True} if effect.response.error in _IGNORED else {}
            self._message(now_us, "reply", sender, effect.response, request, asked=about_request, **more)
        elif isinstance(effect, ReadIndexReady):
            self._line(now_us, "ready", id=effect.token, offset=effect.offset)

    def _message(
        self, now_us: int, event: str, peer: int, message: Request | Response, answered: Request | None = None, **more: object
    ) -> None:
        about, content = repr(message), content_of(message, answered)
        self._line(now_us, event, peer=peer, message=type(message).__name__, about=about, m=content, **more)

    def _line(self, now_us: int, event: str, **more: object) -> None:
        line = {
            "v": VERSION,
            "time_us": now_us,
            "node": self._node.config.node_id,
            "event": event,
            "state": self._state,
            "epoch": self._epoch,
            "leader": self._leader,
            "voted": self._voted,
            "end": self._end,
            "hw": self._high_watermark,
            "durable": self._durable,
            "config": self._node.voters.ids(),
            **more,
            "step": self._step,
        }
        self._write(self._encode(line).decode() + "\n")
