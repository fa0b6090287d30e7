"""Where we differ from the recordings of Apache Kafka 4.3 on purpose: the one table of it."""

from __future__ import annotations

from case_runner.judgement import BetterText, Difference

DIFFERENCES: tuple[Difference, ...] = ()

BETTER_TEXTS: tuple[BetterText, ...] = (
    BetterText(
        "IncrementalAlterConfigs",
        r"Invalid value org\.apache\.kafka\.common\.config\.ConfigException: (Dynamic thread count .*) for configuration .*",
        r"Dynamic thread count update validation failed for .*",
        "the names of Kafka's classes help nobody",
    ),
    BetterText(
        "IncrementalAlterConfigs",
        r"requirement failed: All entries in cordoned\.log\.dirs must be present.*",
        r"All entries in cordoned\.log\.dirs must be present in log\.dirs or log\.dir\. Missing entries : .*; the broker has .*",
        "names the directories that there are",
    ),
    BetterText(
        "DescribeConfigs",
        r"This most likely occurs because of a request being malformed .*",
        r"Unknown resource type -?\d+",
        "names the value that is wrong",
    ),
    BetterText(
        "AlterClientQuotas",
        r"Invalid quota entity combination, IP entity shouldnot be combined with .*",
        r"Invalid quota entity combination, IP entity should not be combined with .*",
        "spelling",
    ),
)
