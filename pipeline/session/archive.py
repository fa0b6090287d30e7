"""Archives of classes (AppCDS): Spark's some 20,000 classes read back as they were parsed, which halves the start.

There are two files: a base archive of Java's own classes, for images that ship none, and on top of it one of what a training run
loaded. Their directory is named by everything that makes them valid: the Java, the version of PySpark, the jars. So an archive of
another time is never looked at, and one that the JVM still does not like is ignored by it in silence.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .java import Java

TRAINING = 1
"""Counts up when the training run changes, so that archives are made anew."""


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the archive for a Java and a Spark is, or would be."""

    directory: Path

    @property
    def base(self) -> Path:
        """Java's own classes."""
        return self.directory / "base.jsa"

    @property
    def top(self) -> Path:
        """Spark's; it is moved here when it is whole."""
        return self.directory / "spark.jsa"

    @property
    def is_built(self) -> bool:
        """Both files are there."""
        return self.base.exists() and self.top.exists()

    @property
    def options(self) -> list[str]:
        """What the JVM is told to use it, nothing if it was not built."""
        return [f"-XX:SharedArchiveFile={self.base}:{self.top}"] if self.is_built else []

    @property
    def stale(self) -> list[Path]:
        """Archives of other Javas and Sparks beside it; other environments of this user may need them."""
        return sorted(path.parent for path in self.directory.parent.glob("*/spark.jsa") if path != self.top)


def archive_for(java: Java, spark_home: Path, cache_directory: Path) -> Archive:
    """The archive that fits this Java and this Spark; it need not exist."""
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
