"""`reassign-partitions --move`: one replica to another log directory of its broker, without a file.

The replica, its broker and the directory are looked up first, so that a mistake is answered with what there is. The present
directory as target ends a running move, as in Kafka.
"""

from __future__ import annotations

import enum
import shlex

import msgspec

from kraftlab.client import AdminClient
from kraftlab.client.log_dirs import NOWHERE, LogDirFilter, replicas_of
from kraftlab.config.directories import named_directory
from kraftlab.config.errors import ConfigError

from . import text
from .actions import describe
from .directories import ReassignmentFailed, move_directories, move_failures, refusal
from .plan import TopicPartition, TopicPartitionReplica


class Outcome(enum.Enum):
    """Outcome of a request to move a replica."""

    STARTED = "started"
    CANCELLED = "cancelled"
    IN_PLACE = "in place"
    VALIDATED = "validated"


class OneMove(msgspec.Struct, frozen=True):
    """A replica with its directory, the directory that it moves to already, and the wanted one."""

    replica: TopicPartitionReplica
    current: str
    future: str | None
    target: str

    def start(self, client: AdminClient, timeout_s: float) -> Outcome:
        """Start or end the move. ReassignmentFailed."""
        if self.current == self.target and self.future is None:
            return Outcome.IN_PLACE
        for _ in move_directories(client, {self.replica: self.target}, timeout_s):
            pass
        return Outcome.CANCELLED if self.current == self.target else Outcome.STARTED

    def lines(self, outcome: Outcome) -> list[str]:
        """Return the outcome for people, with the commands that watch the move and take it back."""
        topic, partition, broker = self.replica
        name = f"{topic}-{partition}"
        match outcome:
            case Outcome.VALIDATED:
                return text.preview_lines({}, {self.replica: self.target})
            case Outcome.CANCELLED:
                return text.cancelled_move_lines({self.replica: self.current})
            case Outcome.IN_PLACE:
                return [f"Replica {name} on broker {broker} is in log directory {self.current} already."]
            case Outcome.STARTED:
                back = f"--move {name} --broker {broker} --to {shlex.quote(self.current)}"
                return [
                    *text.moved_lines({self.replica: self.target}),
                    f"Watch it: kraftlab log-dirs --moves --watch --partition-list {name} --broker-list {broker}",
                    f"Cancel it, or move it back: kraftlab reassign-partitions {back}",
                ]

    def document(self, outcome: Outcome) -> dict[str, object]:
        """Return the outcome for programs."""
        replica = "-".join(map(str, self.replica))
        return {"replica": replica, "state": outcome.value, "from": self.current, "log_dir": self.target}


def find_move(client: AdminClient, partition: TopicPartition, broker: int, directory: str) -> OneMove:
    """Look up a replica, and a directory of its broker by path or name. ReassignmentFailed with what there is, or with the reason
    why the broker would refuse.
    """
    _check_hosts(client, partition, broker)
    described = client.all_log_dirs(LogDirFilter(partitions=[partition]), brokers=[broker])
    if broker in described.silent:
        reason = described.silent[broker]
        raise ReassignmentFailed(f"Error: broker {broker} does not describe its log directories: {reason}")
    found = described.brokers[broker]
    try:
        target = named_directory([each.log_dir for each in found.log_dirs], directory)
    except ConfigError as error:
        raise ReassignmentFailed(f"Error: broker {broker}: {error}") from None
    replica = (*partition, broker)
    places = replicas_of(described).get(replica, NOWHERE)
    if places.current_log_dir is None:
        name = text.name(partition)
        raise ReassignmentFailed(
            f"Error: {name} is in no live log directory of broker {broker}: it is offline, or being created; "
            f"see: kraftlab log-dirs --describe --broker-list {broker}"
        )
    fault = refusal(found, replica, target)
    if fault is not None:
        raise ReassignmentFailed(move_failures({replica: fault}))
    return OneMove(replica, places.current_log_dir, places.future_log_dir, target)


def _check_hosts(client: AdminClient, partition: TopicPartition, broker: int) -> None:
    """ReassignmentFailed unless the broker is one of the partition's replicas."""
    topics = describe(client, [partition[0]])
    if partition[0] not in topics:
        raise ReassignmentFailed(f"Error: there is no topic {partition[0]!r}; kraftlab topics --list shows all")
    replicas = {entry.partition_index: entry.replica_nodes for entry in topics[partition[0]].partitions}
    if partition[1] not in replicas:
        numbers = f"its partitions are 0 to {len(replicas) - 1}"
        raise ReassignmentFailed(f"Error: topic {partition[0]} has no partition {partition[1]}; {numbers}")
    if broker not in replicas[partition[1]]:
        brokers = text.ids(replicas[partition[1]])
        raise ReassignmentFailed(
            f"Error: {text.name(partition)} has no replica on broker {broker}; its brokers are {brokers}. A move to another "
            "broker takes a file: kraftlab reassign-partitions --execute"
        )
