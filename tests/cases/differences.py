"""Where we differ from the recordings of Apache Kafka 4.3 on purpose: the one table of it."""

from __future__ import annotations

from case_runner.judgement import BetterText, Difference

DIFFERENCES: tuple[Difference, ...] = ()

BETTER_TEXTS: tuple[BetterText, ...] = ()
