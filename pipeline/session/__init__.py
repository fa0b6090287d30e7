"""Spark sessions, on machines without Java too: finding or bringing a JVM, settings, warm starts, and a list of missing parts."""
