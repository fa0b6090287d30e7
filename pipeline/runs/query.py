"""SQL over the tables of a lake, as views of the session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import CorruptInput, WrongUse
from ..lake.commits import Lake
from ..session.factory import master_of
from ..storage import uris
from ..storage.schemas import SPARK_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VIEWS = {table: table.replace(".", "_") for table in SPARK_SCHEMAS}
_NAMES = re.compile(r"\b(" + "|".join(re.escape(table) for table in SPARK_SCHEMAS) + r")\b")
_TEXTS = re.compile(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")

NOT_FOUND, FILE_GONE = "TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND"


def with_view_names(text: str) -> str:
    """Return a query with tables named like views: `silver.topics` becomes `silver_topics`. Quoted texts stay."""
    parts = _TEXTS.split(text)
    return "".join(part if index % 2 else _NAMES.sub(lambda found: _VIEWS[found[1]], part) for index, part in enumerate(parts))


def tables_of(text: str) -> list[str]:
    """Return the tables that a query names, in the order of the layers."""
    text = with_view_names(text).lower()
    return [table for table, view in _VIEWS.items() if re.search(rf"\b{view}\b", text)]


def query(spark: SparkSession, lake: Lake, text: str, limit: int) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return (column names, rows), at most `limit` rows. WrongUse for an invalid query, with Spark's words."""
    from pyspark.errors import AnalysisException, PySparkException

    uris.check_reach(lake.uri, master_of(spark))
    if not lake.exists():
        raise WrongUse(f"{lake.place()} is not a lake: nothing was ever committed there; the next step: kraftlab pipeline ingest")
    tables, text = tables_of(text), with_view_names(text)
    try:
        for table in tables:
            lake.read(spark, table).createOrReplaceTempView(_VIEWS[table])
        found = spark.sql(text).limit(limit)
        return found.columns, [tuple(row) for row in found.collect()]
    except AnalysisException as error:
        if error.getCondition() == NOT_FOUND:
            name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
            raise WrongUse(f"there is no table {name}; there are {', '.join(SPARK_SCHEMAS)}") from None
        if error.getCondition() == FILE_GONE:
            raise CorruptInput(f"a file is gone that {lake} names: {_words(error)}") from None
        raise WrongUse(f"the query is wrong: {_words(error)}") from None
    except PySparkException as error:
        raise WrongUse(f"the query failed: {_words(error)}") from None


def _words(error: Exception) -> str:
    """Return Spark's message without the place in its code."""
    return str(error).split("\nJVM stacktrace")[0].strip()
