"""Archives of classes (AppCDS): Spark's some 20,000 classes in their parsed form, which halves the start.

There are two files: a base archive of Java's own classes, for images without one, and an archive of the classes that a training
run loaded. Their directory is named by everything that they depend on: the Java, the version of PySpark, the jars. So an outdated
archive is never used, and the JVM silently ignores one that it does not accept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .java import Java

TRAINING = 1
"""Version of the training run. A higher number makes new archives."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The place of the archive for a Java and a Spark. It need not exist."""

    directory: Path

    @property
    def base(self) -> Path:
        """Archive of Java's own classes."""
        return self.directory / "base.jsa"

    @property
    def top(self) -> Path:
        """Archive of Spark's classes. It is moved here when it is complete."""
        return self.directory / "spark.jsa"

    @property
    def is_built(self) -> bool:
        """True if both files exist."""
        return self.base.exists() and self.top.exists()

    @property
    def options(self) -> list[str]:
        """JVM options that use the archive; none if it was not built."""
        return [f"-XX:SharedArchiveFile={self.base}:{self.top}"] if self.is_built else []

    @property
    def stale(self) -> list[Path]:
        """Archives of other versions of Java and Spark in the same directory. Other environments of this user can need them."""
        return sorted(path.parent for path in self.directory.parent.glob("*/spark.jsa") if path != self.top)


def archive_for(java: Java, spark_home: Path, cache_directory: Path) -> Archive:
    """Return the archive for this Java and this Spark. It need not exist."""
    text = "\n".join(_validity(java, spark_home))
    return Archive(cache_directory / "classes" / hashlib.sha256(text.encode()).hexdigest()[:16])


def _validity(java: Java, spark_home: Path) -> Iterable[str]:
    yield f"training {TRAINING}"
    yield f"java {java.version} {java.home}"
    for path in (java.home / "lib" / "modules", *sorted((spark_home / "jars").glob("*.jar"))):
        if path.exists():
            status = path.stat()
            yield f"{path} {status.st_size} {status.st_mtime_ns}"
    yield f"pyspark {importlib.metadata.version('pyspark')}"
