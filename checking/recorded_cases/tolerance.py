"""Accepted differences from a recording: rules from its `volatile` list and the list of all recordings.

Theory of operation. An entry is a path (`steps[3].response.topics[0].partitions[0].leader_id`), a path with a remark
(`… (order of the elements)`), or a sentence. `_SENTENCES` has the known forms of sentences; an unknown sentence counts for its
field names. Sentences without any meaning here go into the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import paths
from .paths import ANY_DEPTH, Path, Value

_PATH = re.compile(r"(?P<path>(?:steps\[|\*\*\.)\S+)(?P<remark> .*)?")
_FIELD_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
_GLOBAL_ORDER = re.compile(r"(?P<api>[A-Z]\w+): order of (?P<lists>[^(]+?)(?: \(.*\))?")

HASHED = (
    "ApiVersions: order of supported_features, finalized_features",
    "DescribeConfigs: order of configs",
    "CreatePartitions: order of results",
    "AlterClientQuotas: order of entries, entity",
    "DescribeProducers: order of active_producers",
    "DescribeClientQuotas: order of entries, values, entity",
    "ListConfigResources: order of config_resources",
)
"""Lists that Kafka reads from a hash map. Their order has no meaning; most recordings sort them."""

ALL = {"ListPartitionReassignments": ("topics", ("topics", "partitions"))}
"""Value → the field that is null in a request for everything, and the lists that Kafka then reads from a hash map."""
SETS = ("isr_nodes",)
"""Lists in an order of arrival."""

Holder = dict[str, Value]
"""The recorded object of a field."""


@dataclass(frozen=True)
class Rule:
    """Paths of a rule, optionally of one call only, or only in objects that fulfil `when`."""

    pattern: Path
    api: str | None = None
    when: Callable[[Holder], bool] | None = None

    def applies(self, path: Path, api: str, holder: Holder | None) -> bool:
        if self.api is not None and self.api != api:
            return False
        if self.when is not None and (holder is None or not self.when(holder)):
            return False
        return paths.matches(self.pattern, path)


@dataclass
class Tolerance:
    """Differences that a comparison accepts in one document."""

    names: set[str] = field(default_factory=set)
    """Fields whose values are ignored at every place."""
    skipped: list[Rule] = field(default_factory=list)
    unordered: list[Rule] = field(default_factory=list)
    lengths: list[Rule] = field(default_factory=list)
    """Lists that are compared by length."""
    texts: list[Rule] = field(default_factory=list)
    """Messages whose wording may differ."""
    is_any_standby: set[int | None] = field(default_factory=set)
    """Steps for any standby controller; None means all steps."""
    unplaced: set[tuple[str, int]] = field(default_factory=set)
    """Partitions whose broker chose the log dir."""
    is_log_dir_free: bool = False
    coordinators: dict[int, str] = field(default_factory=dict)
    """Recorded broker → the group that it coordinates. Another broker coordinates the group here."""
    not_understood: list[str] = field(default_factory=list)

    def skips(self, path: Path, api: str, holder: Holder | None) -> bool:
        return any(rule.applies(path, api, holder) for rule in self.skipped)

    def is_unordered(self, path: Path, api: str) -> bool:
        return any(rule.applies(path, api, None) for rule in self.unordered)

    def is_length_only(self, path: Path, api: str, holder: Holder | None) -> bool:
        return any(rule.applies(path, api, holder) for rule in self.lengths)

    def is_text_free(self, path: Path, api: str) -> bool:
        return any(rule.applies(path, api, None) for rule in self.texts)


def of(entries: tuple[str, ...], global_entries: tuple[str, ...] = (), global_names: frozenset[str] = frozenset()) -> Tolerance:
    """Return the tolerance of one document."""
    tolerance = Tolerance(names=set(global_names), unordered=[Rule((ANY_DEPTH, name)) for name in SETS])
    for entry in (*HASHED, *global_entries):
        _read_global(tolerance, entry)
    for entry in entries:
        _read(tolerance, entry)
    return tolerance


def add_order_of_all(step: dict[str, Value], tolerance: Tolerance) -> None:
    """Make the lists of a step's call unordered if the request is for everything."""
    field_name, lists = ALL.get(step["api"], ("", ()))
    if lists and step["request"].get(field_name) is None:
        tolerance.unordered += [Rule((ANY_DEPTH, name), step["api"]) for name in lists]


def _read_global(tolerance: Tolerance, entry: str) -> None:
    order = _GLOBAL_ORDER.fullmatch(entry)
    if order is not None:
        for name in re.split(r", | and ", order["lists"]):
            tolerance.unordered.append(Rule((ANY_DEPTH, paths.parse(name)[-1]), order["api"]))
    elif entry.startswith("**."):
        tolerance.names.add(entry.removeprefix("**.").split()[0])
    else:
        _read(tolerance, entry)


def _read(tolerance: Tolerance, entry: str) -> None:
    found = _PATH.fullmatch(entry)
    if found is not None:
        _read_path(tolerance, found["path"], found["remark"] or "")
        return
    if _GLOBAL_ORDER.fullmatch(entry) is not None:
        _read_global(tolerance, entry)
        return
    for pattern, reader in _SENTENCES:
        sentence = pattern.fullmatch(entry)
        if sentence is not None:
            reader(tolerance, sentence)
            return
    names = _FIELD_NAME.findall(entry)
    tolerance.names.update(names)
    if not names:
        tolerance.not_understood.append(entry)


def _read_path(tolerance: Tolerance, text: str, remark: str) -> None:
    try:
        path = paths.parse(text.replace("[]", "[*]"))
    except ValueError:
        tolerance.not_understood.append(text + remark)
        return
    if path[-1] == "to":
        tolerance.is_any_standby.add(path[1] if len(path) > 1 and isinstance(path[1], int) else None)
    elif "order" in remark:
        tolerance.unordered.append(Rule(path))
    elif "future" in remark:
        tolerance.skipped.append(Rule(path, when=lambda replica: bool(replica.get("is_future_key"))))
    else:
        tolerance.skipped.append(Rule(path))


# --- sentences ----------------------------------------------------------------------------------------------------------


def _order_of_path(tolerance: Tolerance, found: re.Match[str]) -> None:
    _read_path(tolerance, found["path"], " (order)")


def _order_of_entries(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.unordered.append(Rule(paths.parse("steps[*].response.*")))


def _order_in_answers(tolerance: Tolerance, found: re.Match[str]) -> None:
    """Unordered topics have unordered partitions too."""
    for name in {found["list"], *(("partitions",) if found["list"] == "topics" else ())}:
        tolerance.unordered.append(Rule((ANY_DEPTH, name), found["api"]))


def _free_texts(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.texts.append(Rule((ANY_DEPTH, "error_message"), found.groupdict().get("api")))


def _values_of_configs(tolerance: Tolerance, found: re.Match[str]) -> None:
    names = set(found["names"].split(", "))

    def is_meant(holder: Holder) -> bool:
        return holder.get("name") in names

    tolerance.skipped.append(Rule((ANY_DEPTH, "value"), when=is_meant))
    tolerance.skipped.append(Rule((ANY_DEPTH, "synonyms"), when=is_meant))


def _unplaced(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.unplaced.add((found["topic"], int(found["partition"])))


def _free_log_dir(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.is_log_dir_free = True


def _all_but_one(tolerance: Tolerance, found: re.Match[str]) -> None:
    kept = found["kept"]
    tolerance.skipped.append(
        _ExceptRule((ANY_DEPTH, found["list"], paths.ANY_INDEX, paths.ANY_NAME), kept=kept),
    )


@dataclass(frozen=True)
class _ExceptRule(Rule):
    """All fields of a list's objects except one."""

    kept: str = ""

    def applies(self, path: Path, api: str, holder: Holder | None) -> bool:
        return path[-1] != self.kept and super().applies(path, api, holder)


def _placement(tolerance: Tolerance, found: re.Match[str]) -> None:
    partition = found["partition"]

    def is_meant(holder: Holder) -> bool:
        return partition is None or holder.get("partition_index") == int(partition)

    for name in found["names"].split(", "):
        rules = tolerance.lengths if name.endswith(("_nodes", "replicas")) else tolerance.skipped
        rules.append(Rule((ANY_DEPTH, name), when=is_meant))


def _names(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.names.update(found[0].split(", "))


def _coordinator(tolerance: Tolerance, found: re.Match[str]) -> None:
    tolerance.coordinators[int(found["broker"])] = found["group"]


def _nothing(tolerance: Tolerance, found: re.Match[str]) -> None:
    """Do nothing: a placeholder covers this sentence."""


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[[Tolerance, re.Match[str]], None]], ...] = (
    (re.compile(r"order of (?P<path>steps\[\S+)"), _order_of_path),
    (re.compile(r"order of response entries.*"), _order_of_entries),
    (re.compile(r"order of (?P<list>\w+) in (?P<api>\w+) answers.*"), _order_in_answers),
    (re.compile(r"error_message of (?P<api>[A-Z]\w+)"), _free_texts),
    (re.compile(r"error_message( texts.*)?"), _free_texts),
    (re.compile(r"the node id in error_message"), _nothing),
    (re.compile(r"values of (?P<names>.+?) (are|is) .*"), _values_of_configs),
    (re.compile(r"dir of (?P<topic>\S+)-(?P<partition>\d+)( \(.*\))?"), _unplaced),
    (re.compile(r"the log dir taken .*"), _free_log_dir),
    (re.compile(r'"to": (?P<broker>\d+) is the coordinator of group (?P<group>\S+)'), _coordinator),
    (re.compile(r"(?P<list>\w+)\[\*\] other than (?P<kept>\w+)"), _all_but_one),
    (re.compile(r"(?P<names>\w+(?:, \w+)*) of (?:partition (?P<partition>\d+)|topics|partitions)\b.*"), _placement),
    (re.compile(r"[a-z][a-z_]*(?:, [a-z][a-z_]*)*"), _names),
)
