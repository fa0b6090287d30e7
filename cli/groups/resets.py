"""New offsets of a group: the specifications of `--reset-offsets`, its CSV files, times and durations. Pure functions."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence

from ..output import BadArgument, BadInput

TopicPartition = tuple[str, int]
_NUMBER = r"([-+]?\d{1,9})"
_DURATION = re.compile(
    rf"([-+])?P(?:{_NUMBER}D)?(?:T(?=[-+\d])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:\.(\d{{1,9}}))?S)?)?", re.ASCII | re.I
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration PnDTnHnMnS, as Java reads it. BadArgument."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:5]):
        raise BadArgument(f"{text!r} cannot be parsed to a duration; write it as PnDTnHnMnS, for example P1DT12H or PT30M")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    milliseconds = int(f"{fraction or '':0<3}"[:3])
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    total = whole * 1000 + (-milliseconds if (seconds or "").startswith("-") else milliseconds)
    return -total if sign == "-" else total


def moment_ms(text: str) -> int:
    """Return a time YYYY-MM-DDTHH:mm:ss.sss in milliseconds since 1970; UTC without a time zone (Z, +hh, +hh:mm). BadArgument."""
    match = _MOMENT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        moment = datetime.datetime.fromisoformat(f"{match[1]}.{match[2]}{match[3] or 'Z'}")
    except ValueError:
        advice = "write it as YYYY-MM-DDTHH:mm:ss.sss in UTC, for example 2026-11-28T15:00:00.000"
        raise BadArgument(f"{text!r} is not a time; {advice}") from None
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return since // datetime.timedelta(milliseconds=1)


def topic_partitions(arguments: Iterable[str]) -> dict[str, list[int] | None]:
    """Return the partitions that `topic` or `topic:0,1` name, None for all of the topic. BadArgument."""
    found: dict[str, list[int] | None] = {}
    for argument in arguments:
        topic, colon, numbers = argument.partition(":")
        if not topic or (colon and re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", numbers, re.ASCII) is None):
            raise BadArgument(f"Invalid topic arg '{argument}', expected topic name and partitions; write TOPIC or TOPIC:0,1")
        if not colon or found.get(topic, ()) is None:
            found[topic] = None
        else:
            found[topic] = sorted({*(found.get(topic) or ()), *map(int, numbers.split(","))})
    return found


def within(offset: int, first: int, end: int, where: str) -> tuple[int, str | None]:
    """Return the nearest offset in a log, and a warning if that is another one."""
    if first <= offset <= end:
        return offset, None
    nearest, which = (first, "lower than earliest") if offset < first else (end, "higher than latest")
    return nearest, f"New offset ({offset}) is {which} offset for topic partition {where}. Value will be set to {nearest}"


def read_csv(lines: Iterable[str], path: str, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of `topic,partition,offset` lines, of the one group, or of `group,topic,partition,offset`. BadInput."""
    import csv

    found: dict[str, dict[TopicPartition, int]] = {}
    reader = csv.reader(lines)
    try:
        for row in filter(None, reader):
            group, *rest = row if len(row) != 3 else (*group_ids[:1], *row)
            if len(rest) != 3 or (len(row) == 3 and len(group_ids) != 1):
                form = "topic,partition,offset" if len(group_ids) == 1 else "group,topic,partition,offset"
                raise BadInput(f"expected {form}, found {','.join(row)}")
            topic, *numbers = rest
            if any(re.fullmatch(r"\s*[0-9]{1,18}\s*", text) is None for text in numbers):
                raise BadInput(f"partition and offset are not numbers: {','.join(row)}")
            found.setdefault(group, {})[topic, int(numbers[0])] = int(numbers[1])
    except (csv.Error, ValueError) as error:  # ValueError: not UTF-8, too
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from None
    return found


def csv_lines(resets: Mapping[str, Mapping[TopicPartition, int]], *, with_group: bool) -> list[str]:
    """Return the lines of a CSV file for `--from-file`."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, offsets in resets.items():
        writer.writerows([*([group] if with_group else []), topic, number, at] for (topic, number), at in sorted(offsets.items()))
    return text.getvalue().split("\n")[:-1]
