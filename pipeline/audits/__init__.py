"""Audits of a metadata log's history, as plain functions over rows, without Spark."""
