"""`kraftlab console-producer` and `kraftlab console-consumer`: write lines to a topic, and print its records."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..completion.values import complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import CommandFailed, Output, WrongUse, json_option, print_json

if TYPE_CHECKING:
    from kraftlab.client import AdminClient, DataClient

    from .client import Producer
    from .lines import FormatterProperties, P, ReaderProperties

_LEADER, _ALL = 1, -1
_ACKS = {"1": _LEADER, "all": _ALL, "-1": _ALL}
_EARLIEST, _LATEST = "earliest", "latest"
_AT_LEAST_ONE = click.IntRange(min=1)

_topic_option = click.option("--topic", required=True, metavar="NAME", shell_complete=complete_topics, help="The topic.")


def _partitions(admin: AdminClient, topic: str, partition: int | None) -> list[int]:
    """Return the partition of the option, or all partitions of the topic, sorted."""
    from kraftlab.client import EntriesFailed
    from kraftlab.common.errors import ErrorCode

    try:
        found = admin.describe_topics([topic])[topic]
    except EntriesFailed as error:
        [failure] = error.failures.values()
        if failure.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise failure from None
        raise CommandFailed(
            f"Error: Topic {topic} does not exist; create it with kraftlab topics --create --topic {topic}"
        ) from None
    numbers = sorted(item.partition_index for item in found.partitions)
    if partition is None:
        return numbers
    if partition not in numbers:
        raise CommandFailed(f"Error: Topic {topic} has partitions 0 to {numbers[-1]}, not {partition}")
    return [partition]


@click.command(
    "console-producer",
    epilog="""\b
Examples:
  printf 'one\\ntwo\\n' | kraftlab console-producer --topic t
  kraftlab console-producer --topic t --property parse.key=true --property key.separator=:

\b
Properties and defaults: parse.key=false, key.separator=TAB, parse.headers=false (header:value,…TAB before key and value),
headers.delimiter=TAB, headers.separator=",", headers.key.separator=":", null.marker=TEXT, ignore.error=false.""",
)
@bootstrap_option
@_topic_option
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Write all records to this partition, whatever their keys."
)
@click.option(
    "--property", "--reader-property", "properties", multiple=True, metavar="KEY=VALUE", help="See Properties below; repeatable."
)
@click.option(
    "--request-required-acks",
    "acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Replicas that must have a batch before the next one is sent: 1: the leader; all or -1: all in-sync replicas.",
)
@click.option(
    "--batch-size",
    type=_AT_LEAST_ONE,
    default=16384,
    show_default=True,
    metavar="BYTES",
    help="Send a batch when it reaches this size.",
)
@click.option(
    "--timeout",
    "linger_ms",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="MS",
    help="Send a smaller batch after this time.",
)
@click.option(
    "--request-timeout-ms",
    "timeout_ms",
    type=_AT_LEAST_ONE,
    default=30_000,
    show_default=True,
    metavar="MS",
    help="Time limit for writing a batch.",
)
@caller_options
@json_option
def console_producer(
    topic: str,
    partition: int | None,
    properties: tuple[str, ...],
    acks: str,
    batch_size: int,
    linger_ms: int,
    timeout_ms: int,
    as_json: bool,
) -> int:
    """Read lines from standard input until it ends, and write each to a topic as a record.

    If a connection breaks while a batch is being written, the batch may end up in the log twice.
    """
    from kraftlab.client import ClusterUnreachable
    from kraftlab.common.errors import ApiError

    from .client import Lines, Producer, open_data
    from .lines import BadLine, ReaderProperties

    out = Output(as_json)
    reader = _properties(ReaderProperties, properties)
    with connect(changes=True) as admin, open_data(admin) as data:
        partitions = _partitions(admin, topic, partition)
        producer = Producer(data, topic, partitions, acks=_ACKS[acks], batch_bytes=batch_size, timeout_ms=timeout_ms)
        try:
            _produce(Lines(sys.stdin.fileno()), producer, reader, linger_ms / 1000)
        except KeyboardInterrupt:
            producer.flush()
            raise
        except (ApiError, ClusterUnreachable, ValueError) as error:
            if isinstance(error, BadLine):
                producer.flush()
            acknowledged = "; ".join(
                f"{topic}-{each.partition} up to offset {each.end_offset - 1}" for each in _written(producer)
            )
            raise CommandFailed(f"Error: {error}; written before: {acknowledged or 'nothing'}") from None
    written = _written(producer)
    out.lines(
        f"{each.records} {'record' if each.records == 1 else 'records'} to {topic}-{each.partition}, "
        f"offsets {each.base_offset} to {each.end_offset - 1}"
        for each in written
    )
    out.result({"topic": topic, "records": sum(each.records for each in written), "partitions": written})
    return DONE


def _written(producer: Producer) -> list[Any]:
    return [producer.written[partition] for partition in sorted(producer.written)]


def _produce(lines: Any, producer: Producer, reader: ReaderProperties, linger_s: float) -> None:
    from .lines import parse_line

    number, due_at = 0, 0.0
    is_terminal = sys.stdin.isatty()
    while not lines.ended:
        if is_terminal and not producer.is_waiting:
            click.echo(">", nl=False, err=True)
        was_waiting = producer.is_waiting
        for line in lines.take(max(due_at - time.monotonic(), 0) if was_waiting else None):
            number += 1
            producer.add(parse_line(line, number, reader))
        now = time.monotonic()
        if not was_waiting:
            due_at = now + linger_s
        if producer.is_waiting and now >= due_at:
            producer.flush()
    producer.flush()


def _properties(kind: type[P], texts: tuple[str, ...]) -> P:
    from .lines import properties_from

    try:
        return properties_from(kind, texts)
    except ValueError as error:
        raise WrongUse(f"Error: --property {error}") from None


@click.command(
    "console-consumer",
    epilog="""\b
Examples:
  kraftlab console-consumer --topic t --from-beginning --timeout-ms 1000
  kraftlab console-consumer --topic t --partition 0 --offset 7 --max-messages 1 --json

\b
Properties and defaults: print.timestamp, print.partition, print.offset, print.headers, print.key (each false), print.value=true,
key.separator=TAB, line.separator=NEWLINE, headers.separator=",", null.literal=null.""",
)
@bootstrap_option
@_topic_option
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Read only this partition.")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest record; default: only new records.")
@click.option("--offset", metavar="N|earliest|latest", help="Start at this offset; needs --partition (default: latest).")
@click.option("--max-messages", type=_AT_LEAST_ONE, metavar="N", help="Exit after N records.")
@click.option("--timeout-ms", type=_AT_LEAST_ONE, metavar="MS", help="Exit when no record arrives for this time.")
@click.option(
    "--property",
    "--formatter-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="See Properties below; repeatable.",
)
@caller_options
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
def console_consumer(
    topic: str,
    partition: int | None,
    from_beginning: bool,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    properties: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print committed records, in order within each partition, until Ctrl-C, or a limit: see --max-messages and --timeout-ms.

    It joins no consumer group, and offsets are not stored.
    """
    from .client import Consumer, open_data
    from .lines import FormatterProperties

    formatter = _properties(FormatterProperties, properties)
    start = _start(partition, from_beginning, offset)
    count = 0
    with connect() as admin, open_data(admin) as data:
        positions = {number: _position(data, topic, number, start, timeout_ms) for number in _partitions(admin, topic, partition)}
        consumer = Consumer(data, topic, positions, lambda text: click.echo(f"WARN {text}", err=True))
        stdout = sys.stdout.buffer
        put = _printer(stdout, topic, formatter, as_json)
        try:
            for found in consumer.records(timeout_ms):
                for each in found[: None if max_messages is None else max_messages - count]:
                    put(each.partition, each.record)
                    count += 1
                stdout.flush()
                if count == max_messages:
                    break
        finally:
            stdout.flush()
            click.echo(f"Processed a total of {count} {'message' if count == 1 else 'messages'}", err=True)
    return FAILED if consumer.has_skipped else DONE


def _start(partition: int | None, from_beginning: bool, offset: str | None) -> int | str:
    """Return the first offset, or earliest or latest. WrongUse."""
    if offset is None:
        return _EARLIEST if from_beginning else _LATEST
    if partition is None:
        raise WrongUse("Error: the partition is required when --offset is given; add --partition")
    if from_beginning:
        raise WrongUse("Error: --from-beginning and --offset exclude each other; give one of them")
    if offset.lower() in (_EARLIEST, _LATEST):
        return offset.lower()
    if re.fullmatch(r"[0-9]{1,18}", offset) is None:
        raise WrongUse(
            f"Error: invalid --offset {offset}: expected a number of at most 18 digits that is not negative, earliest or latest"
        )
    return int(offset)


def _position(data: DataClient, topic: str, partition: int, start: int | str, timeout_ms: int | None) -> int:
    from .client import needs_leader, request_ms

    if isinstance(start, int):
        return start
    with needs_leader(topic, partition):
        first, end = data.bounds(topic, partition, timeout_ms=request_ms(timeout_ms))
    return first if start == _EARLIEST else end


def _printer(stdout: BinaryIO, topic: str, formatter: FormatterProperties, as_json: bool) -> Callable[[int, Any], None]:
    from .lines import format_record, record_document

    if as_json:
        return lambda partition, record: print_json(record_document(record, topic, partition))

    def put(partition: int, record: Any) -> None:
        stdout.write(format_record(record, partition, formatter))

    return put
