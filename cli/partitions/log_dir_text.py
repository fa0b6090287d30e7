"""Text of `kraftlab log-dirs`: Kafka's document, the JSON documents, and the tables. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kraftlab.client.log_dirs import doubts_of, promotion_of, replicas_of
from kraftlab.client.results import AllLogDirs, KeptReplicaCopy, LogDir, LogDirMove, LogDirMoves, LogDirReplica
from kraftlab.common.sizes import bytes_text

from ..reassign.moves_text import move_document, progress_cells, silent_document
from ..tables import aligned, time_text

STORAGE_ERROR = 56


# --- documents ---------------------------------------------------------------------------------------------------------------


def document(described: Mapping[int, Sequence[LogDir]], *, extended: bool = False) -> dict[str, object]:
    """Return Kafka's JSON document, with its order of keys; `extended` adds fields that Kafka's tool omits."""
    return {
        "brokers": [
            {"broker": broker, "logDirs": [_directory(each, extended) for each in sorted(found, key=lambda each: each.log_dir)]}
            for broker, found in sorted(described.items())
        ],
        "version": 1,
    }


def _directory(found: LogDir, extended: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partitions": [_partition(replica, extended) for replica in _sorted(found.replicas)],
        "error": _error(found.error_code),
        "logDir": found.log_dir,
    }
    if extended:
        shown |= {
            "directoryId": found.directory_id,
            "totalBytes": _number(found.total_bytes),
            "usableBytes": _number(found.usable_bytes),
            "isCordoned": found.is_cordoned,
            "replicas": sum(not replica.is_future_key for replica in found.replicas),
            "replicaBytes": sum(replica.partition_size for replica in found.replicas),
            "strays": list(found.strays),
            "errorMessage": found.error_message or None,
            "keptCopies": [_copy(copy) for copy in found.kept_copies],
        }
    return shown


def _partition(replica: LogDirReplica, extended: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "partition": f"{replica.topic}-{replica.partition_index}",
        "size": replica.partition_size,
        "offsetLag": replica.offset_lag,
        "isFuture": replica.is_future_key,
    }
    if extended:
        left, rate = replica.bytes_left, replica.bytes_per_second
        shown |= {
            "logEndOffset": replica.log_end_offset,
            "bytesLeft": _number(left),
            "bytesPerSecond": _number(rate),
            "etaSeconds": round(left / rate, 1) if left is not None and rate else None,
            "startedMs": _number(replica.started_ms),
            "moveError": replica.error or None,
            "lost": None if replica.lost is None else msgspec.structs.asdict(replica.lost),
        }
    return shown


def _copy(copy: KeptReplicaCopy) -> dict[str, object]:
    return {
        "path": copy.path,
        "partition": f"{copy.topic_name}-{copy.partition_index}",
        "size": copy.size_bytes,
        "logEndOffset": _number(copy.log_end_offset),
        "isStray": copy.is_stray,
        "lostLogEndOffset": _number(copy.lost_log_end_offset),
        "doubt": copy.doubt or None,
    }


def _number(value: float | None) -> float:
    return -1 if value is None else value


def _sorted(replicas: Iterable[LogDirReplica]) -> list[LogDirReplica]:
    return sorted(replicas, key=lambda replica: (replica.topic, replica.partition_index, replica.is_future_key))


def _error(code: int) -> str | None:
    if not code:
        return None
    if code == STORAGE_ERROR:
        return "org.apache.kafka.common.errors.KafkaStorageException"
    from kraftlab.common.errors import describe

    return describe(code)


def moves_document(found: LogDirMoves) -> dict[str, object]:
    """Return the replicas that are being filled, for `--moves --json`."""
    return {
        "moves": [{"between_log_dirs": move.replica.is_future_key, **move_document(move)} for move in found.moves],
        "bytes_left": sum(move.replica.bytes_left or 0 for move in found.moves),
        "bytes_per_second": sum(move.replica.bytes_per_second or 0.0 for move in found.moves),
        "eta_ms": _last_eta_ms(found.moves),
        "silent_brokers": silent_document(found.silent),
    }


def replicas_document(described: AllLogDirs) -> dict[str, object]:
    """Return the directories of each replica, for `--replicas --json`."""
    return {
        "replicas": [
            {
                "topic": topic,
                "partition": partition,
                "broker": broker,
                "current_log_dir": found.current_log_dir,
                "current_offset_lag": found.current_offset_lag,
                "future_log_dir": found.future_log_dir,
                "future_offset_lag": found.future_offset_lag,
            }
            for (topic, partition, broker), found in replicas_of(described).items()
        ],
        "silent_brokers": silent_document(described.silent),
    }


def unknown_brokers(unknown: Iterable[int], existing: Iterable[int]) -> str:
    return (
        f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}. "
        f"Current existent brokers: {','.join(map(str, existing))}"
    )


# --- tables ------------------------------------------------------------------------------------------------------------------


def directory_lines(described: AllLogDirs, width_max: int | None = None) -> list[str]:
    """Return the table of directories, with a total of each broker that has several, and the reasons of offline ones."""
    rows: list[tuple[str, ...]] = []
    for broker_id, broker in described.brokers.items():
        rows += [_directory_row(broker_id, found) for found in broker.log_dirs]
        if len(broker.log_dirs) > 1:
            replicas = [replica for found in broker.log_dirs for replica in found.replicas]
            rows.append((str(broker_id), "all", "", *_counts(replicas), "", ""))
    header = ("BROKER", "LOG DIR", "STATE", "REPLICAS", "INCOMING", "SIZE", "FREE", "OF")
    lines = aligned([header, *rows], width_max=width_max) if rows else []
    lines += [
        f"Broker {broker_id}: {found.log_dir} is offline: {found.error_message}"
        for broker_id, broker in described.brokers.items()
        for found in broker.log_dirs
        if found.error_message
    ]
    return lines + [
        f"Broker {broker_id}: {_lost_text(replica)}"
        for broker_id, broker in described.brokers.items()
        for found in broker.log_dirs
        for replica in found.replicas
        if replica.lost is not None
    ]


def doubt_lines(described: AllLogDirs) -> list[str]:
    """Return the replicas that are kept offline because their directories are in doubt, with the next step."""
    return [
        f"{topic}-{partition} is in doubt and offline on {_brokers_text(copies)}. Once another replica leads, it is filled again "
        f"by itself. If none leads, {promotion_of(copies)}"
        for (topic, partition), copies in doubts_of(described).items()
    ]


def _brokers_text(brokers: Iterable[int]) -> str:
    ids = [str(broker) for broker in sorted(brokers)]
    return f"broker{'s' if len(ids) > 1 else ''} {','.join(ids)}"


def _lost_text(replica: LogDirReplica) -> str:
    lost = replica.lost
    assert lost is not None, "only replicas that have lost records are described"
    name, parts = f"{replica.topic}-{replica.partition_index}", []
    if lost.records:
        parts.append(
            f"lost {lost.records} records ({lost.acknowledged_records} acknowledged), {bytes_text(lost.size_bytes)}, in "
            f"{lost.truncations} truncations"
        )
    elif lost.truncations:
        # The start after a crash counts bytes: it cannot read the records.
        parts.append(f"lost {bytes_text(lost.size_bytes)} that could not be read, in {lost.truncations} truncations")
    if lost.unclean_elections:
        parts.append(f"led {lost.unclean_elections} times without being in sync, and may lack any number of records")
    return f"{name} " + "; it ".join(parts)


def _directory_row(broker_id: int, found: LogDir) -> tuple[str, ...]:
    state = "offline" if found.error_code else "cordoned" if found.is_cordoned else "online"
    if doubtful := sum(bool(copy.doubt) for copy in found.kept_copies):
        state += f", {doubtful} in doubt"
    counts = ("-", "-", "-") if found.error_code else _counts(found.replicas)
    return (str(broker_id), found.log_dir, state, *counts, _size(found.usable_bytes), _size(found.total_bytes))


def _counts(replicas: Sequence[LogDirReplica]) -> tuple[str, str, str]:
    """Return number of replicas, number of incoming ones, and their size together."""
    incoming = sum(replica.is_future_key for replica in replicas)
    return str(len(replicas) - incoming), str(incoming), bytes_text(sum(replica.partition_size for replica in replicas))


def _size(value: int | None) -> str:
    return "-" if value is None else bytes_text(value)


def replica_lines(described: AllLogDirs, width_max: int | None = None) -> list[str]:
    """Return the table of replicas with their directories and lags."""
    rows = [
        (
            f"{topic}-{partition}",
            str(broker),
            found.current_log_dir or "-",
            _lag(found.current_offset_lag),
            found.future_log_dir or "-",
            _lag(found.future_offset_lag),
        )
        for (topic, partition, broker), found in replicas_of(described).items()
    ]
    if not rows:
        return ["No replicas found."]
    return aligned([("REPLICA", "BROKER", "LOG DIR", "LAG", "FUTURE LOG DIR", "FUTURE LAG"), *rows], width_max=width_max)


def _lag(lag: int | None) -> str:
    return "-" if lag is None else str(lag)


def move_lines(moves: Sequence[LogDirMove], width_max: int | None = None) -> list[str]:
    """Return the table of replicas that are being filled, and a line about all of them."""
    if not moves:
        return ["No replica is being filled."]
    rows = [
        (
            f"{move.replica.topic}-{move.replica.partition_index}",
            str(move.broker_id),
            (move.replica.source_log_dir or "?") if move.replica.is_future_key else "leader",
            move.log_dir,
            *progress_cells(move),
            _lag(move.replica.offset_lag if move.replica.is_future_key else None),
            f"{bytes_text(move.limit)}/s" if move.limit is not None else "-",
            move.replica.error or "-",
        )
        for move in moves
    ]
    header = ("REPLICA", "BROKER", "FROM", "TO", "LEFT", "RATE", "ETA", "LAG", "LIMIT", "PROBLEM")
    left = sum(move.replica.bytes_left or 0 for move in moves)
    rate = sum(move.replica.bytes_per_second or 0.0 for move in moves)
    eta_ms = _last_eta_ms(moves)
    total = f"{len(moves)} replica{'s' if len(moves) > 1 else ''}, {bytes_text(left)} left, {bytes_text(rate)}/s"
    return [*aligned([header, *rows], width_max=width_max), total + ("" if eta_ms is None else f", {time_text(eta_ms)} to go")]


def _last_eta_ms(moves: Sequence[LogDirMove]) -> int | None:
    """Time until all of them are done, None if one is unknown."""
    etas = [move.eta_ms for move in moves]
    known = [eta_ms for eta_ms in etas if eta_ms is not None]
    return max(known) if known and len(known) == len(etas) else None
