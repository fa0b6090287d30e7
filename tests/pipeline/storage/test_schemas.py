"""Tables are written down once; what Spark and Arrow make of them is the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kraftlab.pipeline.storage import schemas


def test_lists_name_their_items_as_spark_does() -> None:
    isr = schemas.arrow_schema("silver.partition_changes").field("isr").type
    assert isr == pa.list_(pa.field("element", pa.int32()))
    assert isr.value_field.name == "element"


def test_the_two_forms_have_the_same_columns_in_the_same_order() -> None:
    for table in schemas.SPARK_SCHEMAS:
        columns = [column.split() for column in schemas.spark_schema(table).split(", ")]
        assert [name for name, _ in columns] == schemas.arrow_schema(table).names
        assert all(field.nullable for field in schemas.arrow_schema(table))


def test_an_unknown_table_is_named_with_those_that_there_are() -> None:
    with pytest.raises(schemas.NoSuchTable, match=r"'silver.topic' is not a table; known are bronze.batches"):
        schemas.spark_schema("silver.topic")


def test_every_table_belongs_to_a_layer() -> None:
    assert {table for layer in schemas.LAYERS for table in schemas.tables(layer)} == set(schemas.SPARK_SCHEMAS)
