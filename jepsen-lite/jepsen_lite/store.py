"""Runs on disk: everything about a run, so that it can be viewed, judged again, replayed and shrunk later.

    STORE/latest                      a link to the newest run
    STORE/WORKLOAD/UTC-SEED/
        run.json                      the record of the run with its verdicts (`RunRecord`)
        plan.json                     the fault plan
        history.parquet               one row per operation
        log.jsonl                     the committed metadata log, decoded, one record per line
        strikes.json  observations.json
        nodes/NAME.log                the logs of the nodes
        transcript.txt                the last steps of a simulated run that broke a rule
        trace.ndjson.gz               every transition and message of the quorum of a simulated run
        traces/NODE.ndjson            the same of one node of a run on processes, with --trace
        report/index.html
        shrunk/                       after shrinking: the smallest plan, a test, and in least-run the path of its run

`run.json` is written last and atomically: a run without it was cut short.
"""

from __future__ import annotations

import datetime
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from kraftlab.checking.facts import Observation, Strike
from kraftlab.common.pages import replace_file
from kraftlab.config.json_files import BadJson, read_json

from .committed_log import CommittedLog, Entry
from .fault_plan import FaultPlan
from .history import FAIL, INFO, OK, History, Op
from .verdicts import Validity, Verdict, combined
from .workload import Run, RunFacts

DEFAULT_STORE = "runs"
PYTEST_WORKLOAD = "tests"
"""The workload in records of pytest tests."""
LATEST = "latest"
SHRUNK = "shrunk"
LEAST_RUN = "least-run"
TRANSCRIPT = "transcript.txt"
"""The last steps of a simulated run before a rule broke."""
TRACE = "trace.ndjson.gz"
"""The transitions and messages of the nodes of a simulated run, one JSON object per line (`kraftlab.quorum.trace`)."""
NODE_TRACE = "traces/{node}.ndjson"
"""The trace of one node of a run on processes, as its config kraftlab.trace.file has it."""
_RECORD = "run.json"
_NAME_BYTES = 200
"""Bytes of a seed in the name of a directory; file systems allow 255."""
T = TypeVar("T")


class StoreError(Exception):
    """A run cannot be read or written; the text says which run, why, and what to do."""


class RunRecord(RunFacts, frozen=True, kw_only=True):
    """The record of a run. `world` is "simulated", "shell" or "real". `links` is the back end that cut links ("proxy", "netns",
    …), "" if there was none. `command` runs the same again. `properties` are keys of server.properties of all nodes.
    """

    version: int = 1
    workload: str
    world: str
    nemeses: tuple[str, ...] = ()
    links: str = ""
    command: str = ""
    python: str = ""
    kernel: str = ""
    product: str = ""
    properties: dict[str, str] = {}
    log_start: int = 0
    log_end: int = 0
    verdicts: tuple[Verdict, ...] = ()

    @property
    def valid(self) -> Validity:
        return combined(self.verdicts)


class RunDirectory:
    """The directory of one run. Writers create it with `new`, readers find it with `find`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def new(cls, store: str | os.PathLike[str], workload: str, seed: str, now: datetime.datetime | None = None) -> RunDirectory:
        """Create an empty directory named by time and seed, and point `latest` to it."""
        moment = (now or datetime.datetime.now(datetime.UTC)).strftime("%Y%m%dT%H%M%S")
        home = Path(store) / workload
        name = f"{moment}-{_file_name(seed)}"
        try:
            home.mkdir(parents=True, exist_ok=True)
            for attempt in range(1, 1000):
                path = home / (name if attempt == 1 else f"{name}-{attempt}")
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    continue
            (path / "nodes").mkdir()
            _point_latest(Path(store), path)
        except OSError as error:
            raise StoreError(f"cannot keep runs in {store}: {error.strerror}; choose another directory with --store") from error
        return cls(path)

    @classmethod
    def find(cls, name: str, store: str | os.PathLike[str] = DEFAULT_STORE) -> RunDirectory:
        """Return the run at that path, or with that name in the store ("latest", "topics/20260101T000000-7"). StoreError."""
        for path in (Path(name), Path(store) / name):
            if (path / _RECORD).is_file():
                return cls(path.resolve())
        if name == LATEST:
            raise StoreError(f"no run {name} in {store}, or it was cut short; make one with: {first_run(store)}")
        raise StoreError(f"no run {name}, neither as a path nor in {store}; see kraftlab chaos report --all --store {store}")

    @property
    def name(self) -> str:
        """The name that `find` accepts within its store."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def nodes(self) -> Path:
        """The directory of the node logs."""
        return self.path / "nodes"

    def node_logs(self) -> list[Path]:
        """Return the logs of the nodes by name, without pipes and devices."""
        return sorted(path for path in self.nodes.glob("*.log") if path.is_file())

    def node_traces(self) -> str:
        """Make the directory of the nodes' traces, and return their config kraftlab.trace.file. StoreError."""
        path = self.path.resolve() / NODE_TRACE
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot keep traces in {path.parent}: {error.strerror}") from error
        return str(path)

    @property
    def report(self) -> Path:
        return self.path / "report"

    # -- writing ---------------------------------------------------------------------------------------------------------

    def write_plan(self, plan: FaultPlan) -> None:
        self._write_json("plan.json", plan)

    def write_run(self, record: RunRecord, run: Run) -> None:
        """Write a run, the record last."""
        _write_history(self.path / "history.parquet", self.name, run.history)
        if run.log is not None:
            lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in run.log.entries)
            replace_file(self.path / "log.jsonl", lines)
        self._write_json("strikes.json", run.strikes)
        self._write_json("observations.json", run.observations)
        self.write_record(record)

    def write_record(self, record: RunRecord) -> None:
        self._write_json(_RECORD, record)

    def write_trace(self, lines: Iterable[str]) -> None:
        """Write the trace. The same lines give the same file."""
        replace_file(self.path / TRACE, gzip.compress("".join(lines).encode(), mtime=0))

    def _write_json(self, name: str, value: Any) -> None:
        replace_file(self.path / name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    # -- reading ---------------------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        return self._read_json(_RECORD, RunRecord)

    def plan(self) -> FaultPlan:
        return self._read_json("plan.json", FaultPlan)

    def strikes(self) -> tuple[Strike, ...]:
        return self._read_json("strikes.json", tuple[Strike, ...])

    def observations(self) -> tuple[Observation, ...]:
        return self._read_json("observations.json", tuple[Observation, ...])

    def least(self) -> RunDirectory | None:
        """Return the smallest run that still fails like this one, if this run was shrunk and that run still exists."""
        least = self.path / SHRUNK / LEAST_RUN
        try:
            _check_regular(least)
            path = self.path / SHRUNK / least.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return RunDirectory(path.resolve()) if (path / _RECORD).is_file() else None

    def run(self) -> Run:
        """Return the run as checkers see it. StoreError."""
        record = self.record()
        log = self.path / "log.jsonl"
        entries: tuple[Entry, ...] | None = None
        if log.exists():
            decode = msgspec.json.Decoder(Entry).decode
            try:
                _check_regular(log)
                entries = tuple(decode(line) for line in log.read_bytes().splitlines())
            except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
                raise StoreError(f"{log} cannot be read: {error}; run it again with this version") from error
        return Run(
            **record.facts(),
            history=_read_history(self),
            log=None if entries is None else CommittedLog(entries, record.log_start, record.log_end),
            strikes=self.strikes(),
            observations=self.observations(),
        )

    def trace(self) -> list[bytes]:
        """Return the lines of the trace; empty if there is no trace. StoreError."""
        path = self.path / TRACE
        try:
            return gzip.decompress(path.read_bytes()).splitlines() if path.is_file() else []
        except (OSError, EOFError, zlib.error) as error:
            raise StoreError(f"{path} cannot be read: {error}; run it again") from error

    def _read_json(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            _check_regular(path)
            return read_json(path, kind)
        except FileNotFoundError:
            raise StoreError(f"{self.path} has no {name}: the run was cut short; run it again") from None
        except (OSError, BadJson) as error:
            raise StoreError(f"{path} cannot be read: {error}; run it again with this version") from error


def first_run(store: str | os.PathLike[str]) -> str:
    """Return a command that makes a run, for a store that has none."""
    return f"kraftlab chaos test -w registers -n kill --store {store}"


def all_runs(store: str | os.PathLike[str] = DEFAULT_STORE) -> Iterator[RunDirectory]:
    """Yield the runs of a store, newest first, without those that were cut short."""
    found = [path.parent for path in Path(store).glob(f"*/*/{_RECORD}") if LATEST not in path.parts[-3:-1]]
    yield from (RunDirectory(path) for path in sorted(found, key=lambda path: path.name, reverse=True))


def _check_regular(path: Path) -> None:
    """Refuse a pipe or a device in place of a file: reading it could wait without end. OSError."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is not a regular file")


def _file_name(text: str) -> str:
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in text)
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")


def _point_latest(store: Path, path: Path) -> None:
    temporary = store / f".{LATEST}-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.relative_to(store))
    temporary.replace(store / LATEST)


class _Column(NamedTuple):
    """A column of the table of a history, of pyarrow's type `kind`. `field` is the field of `Op`, stored as JSON text if
    `is_json`.
    """

    name: str
    kind: str
    field: str
    is_json: bool = False


_COLUMNS = (
    _Column("index", "int64", "index"),
    _Column("process", "int64", "process"),
    _Column("f", "string", "f"),
    _Column("key", "string", "key"),
    _Column("value", "string", "value", is_json=True),
    _Column("outcome", "string", "outcome"),
    _Column("result", "string", "result", is_json=True),
    _Column("call_ns", "int64", "invoked_ns"),
    _Column("return_ns", "int64", "returned_ns"),
    _Column("ended_ns", "int64", "ended_ns"),
    _Column("error", "string", "error"),
    _Column("req_id", "string", "request_id"),
    _Column("node", "int32", "node"),
    _Column("offset", "int64", "offset"),
    _Column("epoch", "int32", "epoch"),
)
"""The columns after `run`, the name of the run. `return_ns` is null for `info` and follows from the other columns."""
_RETURN = "return_ns"


def _schema() -> Any:
    import pyarrow as pa

    columns = [(column.name, getattr(pa, column.kind)()) for column in _COLUMNS]
    return pa.schema([("run", pa.string()), *columns])


def history_table(name: str, history: Iterable[Op]) -> object:
    """Return a history as an Arrow table, one row per operation. A value that cannot be encoded as JSON is kept as its repr."""
    import pyarrow as pa

    def cell(op: Op, column: _Column) -> Any:
        value = getattr(op, column.field)
        return msgspec.json.encode(value, enc_hook=repr).decode() if column.is_json else value

    rows = [{"run": name} | {column.name: cell(op, column) for column in _COLUMNS} for op in history]
    return pa.Table.from_pylist(rows, schema=_schema())


def history_of(rows: Iterable[dict[str, object]]) -> History:
    """Return the history in the rows of such a table."""
    columns = [column for column in _COLUMNS if column.name != _RETURN]

    def field(row: dict[str, Any], column: _Column) -> Any:
        return msgspec.json.decode(row[column.name]) if column.is_json else row[column.name]

    return History(Op(**{column.field: field(row, column) for column in columns}) for row in rows)


def _write_history(path: Path, name: str, history: History) -> None:
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(history_table(name, history), file)
    replace_file(path, file.getvalue())


def history_columns(directory: RunDirectory, names: Iterable[str]) -> Any:
    """Return some columns of a run's history as an Arrow table, without nulls except in `return_ns`. StoreError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, wanted = directory.path / "history.parquet", list(names)
    try:
        _check_regular(path)
        table = pq.ParquetFile(path).read(wanted)
        schema = pa.schema([_schema().field(name) for name in wanted])
        if not table.schema.equals(schema):
            raise ValueError(f"unexpected columns {', '.join(map(str, table.schema))}")
        for name in wanted:
            if name != _RETURN and table.column(name).null_count:
                raise ValueError(f"{name} is missing in some rows")
        strange = {*table.column("outcome").unique().to_pylist()} - {OK, FAIL, INFO}
        if strange:
            raise ValueError(f"{min(strange)!r} is not an outcome")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read: {error}; run it again") from error
    return table


def _read_history(directory: RunDirectory) -> History:
    table = history_columns(directory, _schema().names)
    try:
        return history_of(table.to_pylist())
    except ValueError as error:
        raise StoreError(f"{directory.path / 'history.parquet'} cannot be read: {error}; run it again") from error
