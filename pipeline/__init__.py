"""The data pipeline: metadata logs as data. Each of its parts is imported when it is used."""
