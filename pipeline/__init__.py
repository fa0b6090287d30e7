"""The data pipeline: metadata logs as data. Each part is imported when it is used."""
