"""Spark's requirements of this machine, checked without starting Spark: a table of checks, each with its remedy.

A check is fine, worth knowing, or missing. Only a missing one keeps the pipeline from running. The machines of a cluster are not
checked: `run` shows their state.
"""

from __future__ import annotations

import enum
import importlib.metadata
import operator
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

import msgspec

from kraftlab.common.extras import install_command

from . import cache, factory, java, settings
from .archive import Archive, archive_for

WORKER_BYTES = 180 << 20
"""Observed need of a Python worker, one per processor."""
SCRATCH_BYTES = 2 << 30
NEEDED = ("pyspark", "pyarrow", "deltalake", "pandas", "numpy", "scipy")
PYTHON_TIMEOUT_S = 60
COMPARED = {">=": operator.ge, "<": operator.lt}
SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
INSTALL = install_command("pipeline")


class State(enum.Enum):
    """Result of a check."""

    FINE = "fine"
    NOTE = "note"
    MISSING = "missing"


class Check(msgspec.Struct, frozen=True):
    """One line of the doctor's report. `remedy` is empty if there is nothing to do."""

    name: str
    state: State
    found: str
    remedy: str = ""


class DoctorReport(msgspec.Struct, frozen=True):
    """All checks. `can_run` is True if none is missing."""

    can_run: bool
    checks: list[Check]


def examine(
    environ: MutableMapping[str, str] = os.environ, *, master: str | None = None, conf: Mapping[str, str] = {}
) -> DoctorReport:
    """Check everything. Takes as long as a few starts of Java and of Python."""
    checks = list(_packages())
    if State.MISSING not in {check.state for check in checks}:
        home = factory.spark_home(environ)
        outside = settings.given_outside(environ, home) | dict(conf)
        chosen, source = _master(environ, outside, master)
        checks.append(Check("master", State.FINE, f"{chosen}, {source}"))
        checks += _spark_home(environ, home)
        if not chosen.startswith(factory.REMOTE):
            checks += _java(environ, home)
        checks += _workers_python(environ, chosen)
        if settings.is_local(chosen):
            checks += [_memory(outside), _scratch(environ, outside)]
    return DoctorReport(all(check.state is not State.MISSING for check in checks), checks)


def run(conf: Mapping[str, str], master: str | None) -> Check:
    """Start Spark, or use the running one, and have it and its Python workers compute a known result."""
    from .warmup import TRAINED, train

    with tempfile.TemporaryDirectory() as scratch, factory.session(master=master, conf=conf) as spark:
        began = time.monotonic()
        total = train(spark, Path(scratch, "run"))
        seconds = time.monotonic() - began
    if total != TRAINED:
        return Check("run", State.MISSING, f"SQL, Parquet and Python workers gave {total} instead of {TRAINED}", INSTALL)
    return Check("run", State.FINE, f"SQL, Parquet and Python workers, in {seconds:.1f} s after the start")


def _packages() -> Iterator[Check]:
    """Compare versions with the bounds of this package."""
    bounds = dict(_bounds())
    found = []
    for name in NEEDED:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, State.MISSING, "not installed", INSTALL)
            continue
        found.append(f"{name} {version}")
        if not _within(version, bounds.get(name, "")):
            yield Check(name, State.NOTE, f"{version}, but {bounds[name]} was tested", INSTALL)
    if found:
        yield Check("packages", State.FINE, ", ".join(found))


def _bounds() -> Iterator[tuple[str, str]]:
    for requirement in importlib.metadata.requires("kraftlab") or []:
        match = re.match(r"([\w-]+)(?:\[[^\]]*\])?([^;]*)", requirement)
        if match:
            yield match[1], match[2].strip()


def _within(version: str, bounds: str) -> bool:
    return all(COMPARED[clause[1]](_numbers(version), _numbers(clause[2])) for clause in re.finditer(r"(>=|<)([\d.]+)", bounds))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _master(environ: Mapping[str, str], outside: Mapping[str, str], asked: str | None) -> tuple[str, str]:
    sources = (
        (asked, "from --master"),
        (environ.get("SPARK_REMOTE"), "from SPARK_REMOTE"),
        (outside.get("spark.master"), "from --conf, PYSPARK_SUBMIT_ARGS or spark-defaults.conf"),
        (settings.local_master(), f"this machine, {settings.processors()} processors"),
    )
    return next((master, source) for master, source in sources if master)


def _spark_home(environ: Mapping[str, str], home: Path) -> Iterator[Check]:
    if environ.get("SPARK_HOME"):
        cores = [path.name.removesuffix(".jar").rpartition("-")[2] for path in home.glob("jars/spark-core_*.jar")]
        version = importlib.metadata.version("pyspark")
        if version in cores:
            yield Check("SPARK_HOME", State.FINE, f"{home}, Spark {version} as the package")
        else:
            held = f"holds Spark {cores[0]}" if cores else "holds no Spark"
            yield Check("SPARK_HOME", State.MISSING, f"{home} {held}, and the package pyspark is {version}", "unset SPARK_HOME")


def _java(environ: MutableMapping[str, str], spark_home: Path) -> Iterator[Check]:
    try:
        found = java.find(environ)
        cached = cache.directory(environ)
        launcher = java.launcher(found, cached)
    except java.NoJava as error:
        text, _, remedy = str(error).partition("\nNext step: ")
        yield Check("java", State.MISSING, text, remedy)
        return
    except OSError as error:
        yield Check("java", State.MISSING, f"its launcher cannot be made: {error}", "set XDG_CACHE_HOME to a directory of yours")
        return
    named = environ.get("JAVA_HOME")
    if named and found.found_by is not java.FoundBy.JAVA_HOME:
        verdict = next(java.candidates(environ)).verdict
        yield Check("JAVA_HOME", State.NOTE, f"{named} is not used: {verdict}", "unset JAVA_HOME, or correct it")
    yield Check("java", State.FINE, f"{found.version}, from {found.found_by.value}: {found.home}")
    if found.feature not in java.TESTED:
        tried = ", ".join(map(str, java.TESTED))
        yield Check("java", State.NOTE, f"Java {found.feature} was not tested; {tried} were", "set JAVA_HOME if it does not work")
    yield Check("launcher", State.FINE, f"{launcher}, drops an argument of Spark's that it does not need")
    yield from _archive(archive_for(found, spark_home, cached))


def _archive(archive: Archive) -> Iterator[Check]:
    if archive.is_built:
        yield Check("archive", State.FINE, f"{archive.directory}, halves the start")
    else:
        yield Check("archive", State.NOTE, "none for this Java and PySpark", "kraftlab pipeline warmup halves the start")
    if archive.stale:
        shown = " ".join(str(path) for path in archive.stale)
        yield Check(
            "archive", State.NOTE, f"of other Javas or PySparks: {len(archive.stale)}", f"rm -r {shown} if none needs them"
        )


def _workers_python(environ: Mapping[str, str], master: str) -> Iterator[Check]:
    """Check that driver and workers run the same minor version, and that both have this package."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not settings.is_local(master):
        text = f"{environ.get('PYSPARK_PYTHON', 'python3')} of each worker, cannot be checked from here"
        yield Check(
            "workers' Python",
            State.NOTE,
            text,
            f"it must be {ours} and have the extra pipeline; PYSPARK_PYTHON names it",
        )
        return
    executable = environ.get("PYSPARK_PYTHON", sys.executable)
    script = "import sys, pyarrow, pandas, kraftlab; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [executable, "-c", script],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PYTHON_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check("workers' Python", State.MISSING, f"{executable} cannot be run: {error}", "unset PYSPARK_PYTHON")
        return
    if answer.returncode == 0 and answer.stdout.strip() == ours:
        yield Check("workers' Python", State.FINE, f"{executable}, {ours} as here")
    else:
        fault = answer.stderr.strip().rpartition("\n")[2] or f"it is {answer.stdout.strip()}, and this is {ours}"
        yield Check(
            "workers' Python",
            State.MISSING,
            f"{executable}: {fault}",
            f"unset PYSPARK_PYTHON, or install there: {INSTALL}",
        )


def _memory(outside: Mapping[str, str]) -> Check:
    driver = outside.get("spark.driver.memory", settings.DRIVER_MEMORY)
    workers = settings.processors() * WORKER_BYTES
    text = f"driver {driver}, workers {_size(workers)}"
    available = _available_memory()
    if available is None:
        return Check("memory", State.FINE, text)
    text += f", available {_size(available)}"
    if _bytes(driver) + workers > available:
        return Check("memory", State.NOTE, text, "kraftlab pipeline --conf spark.driver.memory=1g, or end something else")
    return Check("memory", State.FINE, text)


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _scratch(environ: Mapping[str, str], outside: Mapping[str, str]) -> Check:
    directory = environ.get("SPARK_LOCAL_DIRS") or outside.get("spark.local.dir") or tempfile.gettempdir()
    remedy = "kraftlab pipeline --conf spark.local.dir=DIRECTORY, on a disk with room"
    try:
        free = shutil.disk_usage(directory.partition(",")[0]).free
    except OSError as error:
        return Check("scratch", State.MISSING, f"{directory}: {error.strerror}", remedy)
    state = State.FINE if free >= SCRATCH_BYTES else State.NOTE
    return Check("scratch", state, f"{directory}, {_size(free)} free", "" if state is State.FINE else remedy)


def _bytes(amount: str) -> int:
    """Parse 512m, 2g, 1048576."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", amount.lower())
    return int(match[1]) << SHIFTS[match[2]] if match else 0


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
