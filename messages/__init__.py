"""Kafka's messages: values with the fields of all versions, from bytes and to bytes.

`generated/` has a module for each message, written from Kafka's own schemas in proto/kafka: value classes, whose `FIELDS` are the
rows of the schema. `reading` and `writing` compile the rows of one message and version into a function, on first use.
"""
