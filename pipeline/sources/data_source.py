"""The two data sources as Spark knows them.

One row is a batch with its bytes (`bronze.batches`), a damage (`bronze.quarantine`) or a record, by the option `rows`. Spark does
not pass a query's columns to a Python source: with `.schema("offset bigint, name string")` only these columns are made.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..errors import WrongUse
from ..storage.schemas import spark_schema
from .columns import RECORDS_SCHEMA
from .formats import FORMATS, KAFKA, KRAFTLAB
from .options import BATCHES, DAMAGES, QUORUM, RECORDS, parse
from .reader import LogReader, PushdownLogReader
from .streaming import FileStreamReader, QuorumStreamReader

SCHEMAS: Mapping[str, str] = {
    BATCHES: spark_schema("bronze.batches"),
    DAMAGES: spark_schema("bronze.quarantine"),
    RECORDS: RECORDS_SCHEMA,
}


class _LogSource(DataSource):
    """Common part of both sources, which differ in the format alone."""

    format_name: str

    @classmethod
    def name(cls) -> str:
        return FORMATS[cls.format_name].source

    def schema(self) -> str:
        return SCHEMAS[parse(self.options).rows]

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options)
        if options.live is not None:
            raise WrongUse(
                f"a running quorum is read as a stream (readStream); give directories to read {QUORUM}{options.live} once"
            )
        kind = PushdownLogReader if options.pushdown else LogReader
        return kind(self.format_name, options, SCHEMAS[options.rows], schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(self.options)
        kind = FileStreamReader if options.live is None else QuorumStreamReader
        return kind(self.format_name, options, SCHEMAS[options.rows], schema)


class KraftlabLogSource(_LogSource):
    """Segments and snapshots of our controllers and brokers."""

    format_name = KRAFTLAB


class KafkaLogSource(_LogSource):
    """Segments and checkpoints of Kafka's `__cluster_metadata-0`."""

    format_name = KAFKA
