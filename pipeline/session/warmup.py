"""Creation of the archive of classes: a training run does a little of everything that the commands do, in a JVM that records its
loaded classes at its end. The complete archive is moved to its place.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import EnvironmentFault, WrongUse
from . import cache, factory, java, settings
from .archive import Archive, archive_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DUMP_TIMEOUT_S = 300
ROOM_MB = 220
TRAINED = 999_000
"""Result of `train`: the sum of every number below 1,000, twice."""


@dataclass(frozen=True, slots=True)
class WarmUpResult:
    """Result of `warm_up`. `built` is False if the archive existed already."""

    archive: Archive
    built: bool
    size_bytes: int


def warm_up(*, progress: Callable[[str], None]) -> WarmUpResult:
    """Create the archive for this Java and this Spark, unless it exists. `progress` gets a line for each step.

    Raises NoJava; EnvironmentFault if the JVM wrote no archive; WrongUse in a Spark that another program started.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        raise WrongUse("warmup is for sessions that start a JVM here, and this one is given by spark-submit or SPARK_REMOTE")
    found = java.ensure()
    archive = archive_for(found, factory.spark_home(), cache.directory(os.environ))
    built = not archive.is_built
    if built:
        progress(f"a training run on Java {found.version} …")
        archive.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=archive.directory) as scratch:
            write_base(found, archive.base, Path(scratch, "base.jsa"))
            _write_top(archive, Path(scratch), progress)
    return WarmUpResult(archive, built, sum(path.stat().st_size for path in (archive.base, archive.top)))


def write_base(found: java.Java, path: Path, scratch: Path) -> None:
    """Write the base archive. It comes first and stays in its place: the other one remembers its path."""
    dumped = subprocess.run(
        [found.home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={scratch}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=DUMP_TIMEOUT_S,
        check=False,
    )
    if dumped.returncode != 0:
        raise EnvironmentFault(f"java -Xshare:dump ended with {dumped.returncode}: {dumped.stdout.strip()[-500:]}")
    os.replace(scratch, path)


def _write_top(archive: Archive, scratch: Path, progress: Callable[[str], None]) -> None:
    path = scratch / "spark.jsa"
    only_once = "-XX:TieredStopAtLevel=1"
    options = shlex.join([f"-XX:SharedArchiveFile={archive.base}", f"-XX:ArchiveClassesAtExit={path}", only_once])
    with factory.session(master=settings.local_master(), conf={factory.JAVA_OPTIONS: options}) as spark:
        total = train(spark, scratch / "training")
        if total != TRAINED:
            raise EnvironmentFault(f"the training run gave {total} instead of {TRAINED}; next step: kraftlab pipeline doctor")
        progress("writing the archive …")
    if not path.exists():
        raise EnvironmentFault(f"the JVM ended without writing {path}; is there room for {ROOM_MB} MB?")
    os.replace(path, archive.top)


def train(spark: SparkSession, directory: Path) -> int:
    """Run SQL, a window, Parquet out and in, and Python workers with Arrow. Return a sum with a known result."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from (batch, batch)

    numbers = spark.range(1000).select("id", (f.col("id") % 7).alias("key"), f.array("id").alias("list"))
    numbers.write.partitionBy("key").parquet(directory.as_uri())
    stored = spark.read.parquet(directory.as_uri())
    ranked = stored.withColumn("rank", f.row_number().over(Window.partitionBy("key").orderBy("id")))
    twice = ranked.repartition("key").sortWithinPartitions("key", "id").mapInArrow(doubled, ranked.schema)
    twice.createOrReplaceTempView("training")
    text = "select sum(id) as total from training t join (select distinct key from training) using (key) where size(list) = 1"
    total: int = spark.sql(text).collect()[0].total
    return total
