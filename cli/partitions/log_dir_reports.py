"""The actions of `kraftlab log-dirs` that only read: `--describe`, `--replicas` and `--moves`.

Every filter is the brokers' work. The brokers are asked at once; a silent one is named and costs the exit code, not the answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click
import msgspec

from kraftlab.client import AdminClient, EntriesFailed
from kraftlab.client.log_dirs import LogDirFilter, moves_of
from kraftlab.client.results import AllLogDirs, LogDirMoves, Topic
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ErrorCode

from ..output import CommandFailed, Output, WrongUse, print_json
from ..reassign.moves_text import silent_document
from ..reassign.plan import PlanError, parse_brokers, parse_partition
from . import log_dir_text as text
from .log_dir_repairs import describe_copy
from .screen import Screen

WATCH_S = 1.0


class Filters(msgspec.Struct, frozen=True):
    """Values of the options that filter, as written."""

    brokers: str | None
    topics: str | None
    partitions: str | None
    log_dirs: str | None


def describe(client: AdminClient, wanted: Filters, out: Output, *, as_table: bool) -> int:
    """Describe directories: as a table for people, otherwise in Kafka's text or as JSON. Fenced brokers are not asked."""
    registered = client.describe_cluster(include_fenced_brokers=True).brokers
    fenced = [] if wanted.brokers else [broker.broker_id for broker in registered if broker.is_fenced]
    brokers = _brokers(wanted, {broker.broker_id for broker in registered} - {*fenced})
    wanted_here = _filter(client, wanted)
    if not as_table:
        out.lines(["Querying brokers for log directories information"])
    described = client.all_log_dirs(wanted_here, brokers=brokers)
    _check_directories(client, described, wanted, brokers)
    found = {broker: answer.log_dirs for broker, answer in described.brokers.items()}
    copies = [describe_copy(broker, copy) for broker in found for each in found[broker] for copy in each.kept_copies]
    copies += text.doubt_lines(described)
    if as_table:
        out.lines(text.directory_lines(described, out.width))
        moves = moves_of(described).moves
        out.lines(["", *text.move_lines(moves, out.width)] if moves else [])
        out.lines(["", *copies] if copies else [])
        out.lines([f"Broker {broker} is fenced and was not asked; --broker-list asks it all the same." for broker in fenced])
    else:
        out.lines([f"Received log directory information from brokers {','.join(map(str, sorted(found)))}"])
        out.lines([msgspec.json.encode(text.document(found)).decode()])
        for line in () if out.as_json else copies:
            click.echo(line, err=True)
    out.result(text.document(found, extended=True) | {"silentBrokers": silent_document(described.silent)})
    return out.silent_brokers(described.silent)


def show_replicas(client: AdminClient, wanted: Filters, out: Output) -> int:
    """Show the current and the future directory of each replica (Kafka's describeReplicaLogDirs)."""
    described = _ask_all(client, wanted)
    out.lines(text.replica_lines(described, out.width))
    out.result(text.replicas_document(described))
    return out.silent_brokers(described.silent)


def show_moves(client: AdminClient, wanted: Filters, out: Output, *, watches: bool) -> int:
    """Show replicas that are being filled; with `watches` until none is left, as one JSON document a line or on the screen."""
    screen = Screen(sys.stdout)
    while True:
        found = moves_of(_ask_all(client, wanted, only_filling=True))
        ends = not watches or not found.moves
        _show(found, out, screen, watches)
        if ends:
            return out.silent_brokers(found.silent)
        time.sleep(WATCH_S)


def _show(found: LogDirMoves, out: Output, screen: Screen, watches: bool) -> None:
    if not out.as_json:
        lines = text.move_lines(found.moves, out.width)
        lines += [f"Broker {broker} is missing here: {reason}" for broker, reason in found.silent.items()] if watches else []
        screen.show(lines)
    else:
        document = text.moves_document(found)
        print_json({"time_ms": wall_clock_ms(), **document} if watches else document)


def _ask_all(client: AdminClient, wanted: Filters, *, only_filling: bool = False) -> AllLogDirs:
    """Ask the wanted brokers, by default all registered ones, fenced ones too."""
    brokers = _brokers(wanted, [broker.broker_id for broker in client.describe_cluster(include_fenced_brokers=True).brokers])
    described = client.all_log_dirs(msgspec.structs.replace(_filter(client, wanted), only_filling=only_filling), brokers=brokers)
    _check_directories(client, described, wanted, brokers)
    return described


def _brokers(wanted: Filters, existing: Iterable[int]) -> list[int]:
    existing = sorted(existing)
    if not wanted.brokers:
        return existing
    try:
        named = sorted(parse_brokers(wanted.brokers))
    except PlanError as error:
        raise WrongUse(f"ERROR: {error}") from None
    unknown = [broker for broker in named if broker not in existing]
    if unknown:
        raise CommandFailed(text.unknown_brokers(unknown, existing))
    return named


def _filter(client: AdminClient, wanted: Filters) -> LogDirFilter:
    """Return the filter that the options ask for. CommandFailed for a topic or partition that does not exist."""
    topics = sorted({*wanted.topics.split(",")}) if wanted.topics else None
    partitions = _partitions(wanted.partitions.split(",")) if wanted.partitions else None
    names = sorted({*(topics or ()), *(topic for topic, _ in partitions or ())})
    described: dict[str, Topic] = {}
    missing: list[str] = []
    try:
        described = client.describe_topics(names) if names else {}
    except EntriesFailed as error:
        described = error.response
        refused = {name: error.failures[f"topic {name}"] for name in names if name not in described}
        missing = [name for name, failure in refused.items() if failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if missing:
        option = "--topic-list" if topics and {*missing} & {*topics} else "--partition-list"
        raise CommandFailed(f"ERROR: The given topics do not exist from {option}: {','.join(missing)}")
    existing = {(topic.name, entry.partition_index) for topic in described.values() for entry in topic.partitions}
    gone = [f"{topic}-{index}" for topic, index in partitions or () if (topic, index) not in existing]
    if gone:
        raise CommandFailed(f"ERROR: The given partitions do not exist from --partition-list: {','.join(gone)}")
    log_dirs = tuple(wanted.log_dirs.split(",")) if wanted.log_dirs else ()
    return LogDirFilter(topics=topics, partitions=partitions, log_dirs=log_dirs)


def _partitions(names: Iterable[str]) -> list[tuple[str, int]]:
    try:
        return [parse_partition(name) for name in names]
    except PlanError as error:
        raise WrongUse(f"ERROR: --partition-list: {error}") from None


def _check_directories(client: AdminClient, described: AllLogDirs, wanted: Filters, brokers: list[int]) -> None:
    """CommandFailed for a directory of --dir-list that no broker has, if all have answered."""
    if not wanted.log_dirs or described.silent:
        return
    shown = [found for broker in described.brokers.values() for found in broker.log_dirs]
    missing = {*wanted.log_dirs.split(",")} - {found.log_dir for found in shown} - {found.directory_id for found in shown}
    if missing:
        everything = client.all_log_dirs(LogDirFilter(topics=[]), brokers=brokers).brokers.values()
        known = ", ".join(sorted({found.log_dir for broker in everything for found in broker.log_dirs}))
        raise CommandFailed(
            f"ERROR: The given log directories do not exist from --dir-list: {','.join(sorted(missing))}. "
            f"Current existent log directories: {known}"
        )
