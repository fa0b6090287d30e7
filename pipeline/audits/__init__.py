"""Audits of a metadata log's history, as plain functions over rows: no Spark in here. `tables/gold.py` runs them on Spark."""
