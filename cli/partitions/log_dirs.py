"""`kraftlab log-dirs`: the log directories of brokers and their replicas (kafka-log-dirs), and their repair after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..connection import bootstrap_option, caller_options, connect
from ..output import DONE, CommandFailed, Output, json_option

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb

STORAGE_ERROR = 56
UNKNOWN_TOPIC = 3


@click.command(
    "log-dirs",
    epilog="""\b
Examples:
  kraftlab log-dirs --describe
  kraftlab log-dirs --describe --broker-list 0,1 --topic-list orders --json
  kraftlab log-dirs --online /data/d1 --broker 0
  kraftlab log-dirs --promote orders-3 --broker 0
  kraftlab log-dirs --drop orders-3 --broker 0 --force

\b
--json adds sizes of the directories (KIP-827), and the rate and the remaining bytes of moves.""",
)
@bootstrap_option
@click.option("--describe", is_flag=True, help="Describe log directories.")
@click.option("--online", metavar="DIR", help="Bring a log directory that failed back, once its disk is repaired and mounted.")
@click.option("--promote", metavar="COPY", help="Make a kept copy, TOPIC-PARTITION or its path, the log of its replica.")
@click.option("--drop", metavar="COPY", help="Delete a kept copy, TOPIC-PARTITION or its path.")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="The broker of --online, --promote and --drop.")
@click.option("--force", is_flag=True, help="With --promote or --drop: do not ask for confirmation.")
@click.option("--broker-list", metavar="IDS", help="Only these brokers, for example 0,1.")
@click.option("--topic-list", metavar="TOPICS", help="Only these topics, separated by commas.")
@caller_options
@json_option
def log_dirs(
    describe: bool,
    online: str | None,
    promote: str | None,
    drop: str | None,
    broker: int | None,
    force: bool,
    broker_list: str | None,
    topic_list: str | None,
    as_json: bool,
) -> int:
    """Show the log directories of brokers and the replicas in them; bring directories back after a failure."""
    actions = [each for each in (describe or None, online, promote, drop) if each is not None]
    if not actions:
        raise CommandFailed('Missing required argument "[describe]"\nSee: kraftlab log-dirs --help')
    if len(actions) > 1:
        raise CommandFailed("Error: give one of --describe, --online, --promote and --drop")
    if describe:
        return _describe(broker_list, topic_list, Output(as_json))
    if broker is None:
        raise CommandFailed(
            "Error: --online, --promote and --drop need --broker ID; kraftlab log-dirs --describe shows the brokers"
        )

    from .log_dir_repairs import bring_online, resolve

    out = Output(as_json)
    with connect() as client:
        if online is not None:
            bring_online(client, broker, online, out)
        else:
            resolve(client, broker, promote or drop or "", out, promote=promote is not None, force=force)
    return DONE


def _describe(broker_list: str | None, topic_list: str | None, out: Output) -> int:
    from ..reassign.plan import PlanError, parse_brokers

    topics = frozenset(topic_list.split(",")) if topic_list else None
    with connect() as client:
        existing = sorted(broker.broker_id for broker in client.describe_cluster().brokers)
        try:
            wanted = sorted(parse_brokers(broker_list)) if broker_list else existing
        except PlanError as error:
            raise CommandFailed(f"ERROR: {error}") from None
        unknown = [broker for broker in wanted if broker not in existing]
        if unknown:
            raise CommandFailed(unknown_brokers(unknown, existing))
        described = client.describe_topics(sorted(topics)).topics if topics else ()
        missing = [topic.name for topic in described if topic.error_code == UNKNOWN_TOPIC]
        if missing:
            raise CommandFailed(f"ERROR: The given topics do not exist from --topic-list: {','.join(missing)}")
        out.lines(["Querying brokers for log directories information"])
        responses = {broker: client.describe_log_dirs(broker) for broker in wanted}
    out.lines([f"Received log directory information from brokers {','.join(map(str, wanted))}"])
    out.lines([msgspec.json.encode(document(responses, topics)).decode()])
    if not out.as_json:
        _name_copies(responses)
    out.result(document(responses, topics, extended=True))
    return DONE


def _name_copies(responses: Mapping[int, pb.DescribeLogDirsResponse]) -> None:
    """Name kept copies on stderr, beside Kafka's document."""
    from .log_dir_repairs import describe_copy

    for broker, response in sorted(responses.items()):
        for result in response.results:
            for copy in result.kept_copies:
                click.echo(describe_copy(broker, copy), err=True)


def unknown_brokers(unknown: list[int], existing: list[int]) -> str:
    return (
        f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}. "
        f"Current existent brokers: {','.join(map(str, existing))}"
    )


def document(
    responses: dict[int, pb.DescribeLogDirsResponse], topics: frozenset[str] | None, *, extended: bool = False
) -> dict[str, object]:
    """Return Kafka's JSON document, with its order of keys; `extended` adds fields that Kafka's tool omits."""
    return {
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    _directory(result, topics, extended) for result in sorted(response.results, key=lambda result: result.log_dir)
                ],
            }
            for broker, response in sorted(responses.items())
        ],
        "version": 1,
    }


def _directory(result: pb.LogDirResult, topics: frozenset[str] | None, extended: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partitions": [
            _partition(topic.name, entry, extended)
            for topic in sorted(result.topics, key=lambda topic: topic.name)
            if topics is None or topic.name in topics
            for entry in sorted(topic.partitions, key=lambda entry: (entry.partition_index, entry.is_future_key))
        ],
        "error": _error(result.error_code),
        "logDir": result.log_dir,
    }
    if extended:
        shown |= {
            "directoryId": result.directory_id,
            "totalBytes": result.total_bytes,
            "usableBytes": result.usable_bytes,
            "strays": list(result.strays),
            "errorMessage": result.error_message or None,
            "keptCopies": [
                {
                    "path": copy.path,
                    "partition": f"{copy.topic_name}-{copy.partition_index}",
                    "size": copy.size_bytes,
                    "logEndOffset": copy.log_end_offset,
                    "isStray": copy.is_stray,
                    "lostLogEndOffset": copy.lost_log_end_offset,
                }
                for copy in result.kept_copies
            ],
        }
    return shown


def _partition(topic: str, entry: pb.LogDirPartition, extended: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partition": f"{topic}-{entry.partition_index}",
        "size": entry.partition_size,
        "offsetLag": entry.offset_lag,
        "isFuture": entry.is_future_key,
    }
    if extended:
        left, rate = entry.bytes_left, entry.bytes_per_second
        shown |= {
            "logEndOffset": entry.log_end_offset,
            "bytesLeft": left,
            "bytesPerSecond": rate,
            "etaSeconds": round(left / rate, 1) if left >= 0 and rate > 0 else None,
            "startedMs": entry.started_ms,
            "moveError": entry.error or None,
        }
    return shown


def _error(code: int) -> str | None:
    if not code:
        return None
    if code == STORAGE_ERROR:
        return "org.apache.kafka.common.errors.KafkaStorageException"
    from kraftlab.metadata.errors import describe

    return describe(code)
