"""Runs one recording step by step against a lab.

Theory of operation. A step is a request or a change of the cluster. A request is mapped, sent to the node that the recording
names, and its answer is compared. A request without effects (`is_question`) is repeated for a while if its answer differs:
brokers learn of changes a little later, and the recording has the final state. A change is never sent twice. A scenario continues
after a failure, to report all failures, but waits only shortly then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kraftlab.common.errors import ErrorCode

from . import paths, sentences, trims
from . import tolerance as tolerances
from .comparison import (
    ABSENT,
    Comparison,
    Mismatch,
    Placeholders,
    describe,
    is_placeholder,
    topic_id_of,
)
from .documents import Document, Folder
from .doors import Door, NoAnswer, NotAsked
from .judgement import BetterText, Difference, Failure, Judge, Outcome
from .lab import POLL_S, TOPIC, Lab, LabFault
from .mapping import CannotMap, is_uuid, short_id
from .paths import Path, Value
from .tidying import tidy

PATIENCE_S = 3.0
"""Time in which a question is repeated until its answer is as recorded."""
PATIENCE_AFTER_FAILURE_S = 0.2
WAIT_S = 20.0
WAIT_AFTER_FAILURE_S = 3.0
WAIT_IN_VAIN_S = 0.3
"""Time to wait for an effect that we avoid on purpose."""
_STANDBY_CODES = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NO_COORDINATOR = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
SILENT = "no answer"
"""The transport of a step that Kafka did not answer. Ours may refuse each entry with a code."""
_REFUSED = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST)
"""Our error codes where Kafka closes the connection."""


def is_question(api: str) -> bool:
    """Return whether a call changes nothing and can be repeated."""
    return api.startswith(("Describe", "List", "Metadata", "ApiVersions"))


def placements(document: Document) -> frozenset[tuple[int | str, str, int]]:
    """Return the (broker, topic, partition) triples with a log dir in a step."""
    found: set[tuple[int | str, str, int]] = set()
    for step in document.steps:
        if step.get("action") == "remember_log_dir":
            found.update((step["broker"], step["topic"], index) for index in step["partitions"])
        elif step.get("api") == "AlterReplicaLogDirs":
            found.update(
                (step["to"], topic["name"], index)
                for place in step["request"]["dirs"]
                for topic in place["topics"]
                for index in topic["partitions"]
            )
    return frozenset(found)


def has_no_coordinator(response: Value) -> bool:
    """Return whether an answer says that the node does not coordinate the group, or not yet: the call had no effect."""
    if isinstance(response, list):
        return any(map(has_no_coordinator, response))
    if not isinstance(response, dict):
        return False
    return response.get("error_code") in _NO_COORDINATOR or any(map(has_no_coordinator, response.values()))


class Run:
    """One scenario on its lab."""

    def __init__(
        self,
        document: Document,
        folder: Folder,
        lab: Lab,
        door: Door,
        differences: Sequence[Difference] = (),
        texts: Sequence[BetterText] = (),
    ) -> None:
        self._document = document
        self._lab = lab
        self._door = door
        self._tolerance = tolerances.of(document.volatile, folder.volatile, folder.volatile_names)
        self._judge = Judge(document.name, differences, texts, document.steps)
        self._placeholders = Placeholders()
        self._sessions: dict[int, int] = {}
        """Our ids of the recording's fetch sessions."""
        self._outcome = Outcome(document.name)
        self._outcome.notes += [f"volatile entry that is not understood: {text}" for text in self._tolerance.not_understood]
        self._waits_for_next = False
        self._stopped: dict[int, int] = {}
        """Brokers that the scenario has stopped, by the recorded ones."""
        self._placed = placements(document)

    def run(self) -> Outcome:
        """Run all steps, also after failures, and restore the cluster."""
        try:
            self._prepare()
            for index, step in enumerate(self._document.steps):
                self._step(index, step)
        finally:
            self._attempt(len(self._document.steps), "tidy", lambda: tidy(self._lab, self._document))
        return self._outcome

    def _prepare(self) -> None:
        for unknown in self._document.unknown_preconditions:
            self._fail(0, "precondition", unknown, "a precondition that this runner does not know")
        for broker in self._document.stopped_brokers:
            self._attempt(0, "precondition.stopped_brokers", lambda broker=broker: self._lab.stop_broker(broker))  # type: ignore[misc]

    def _step(self, index: int, step: dict[str, Value]) -> None:
        if "api" in step:
            self._attempt(index, "api", lambda: self._request(index, step))
        elif "action" in step:
            self._attempt(index, "action", lambda: self._act(index, step))
        else:
            self._fail(index, "step", "a step with api or action", sorted(step))

    def _attempt(self, index: int, what: str, do: Callable[[], None]) -> None:
        """Run a part of a step; a failure goes into the outcome and does not end the run."""
        try:
            do()
        except NotAsked:
            return
        except (LabFault, CannotMap) as error:
            self._fail(index, what, "no fault", str(error))
        except NoAnswer as error:
            self._fail(index, "transport", "an answer", str(error))
        except Exception as error:
            self._fail(index, what, "no fault", f"{type(error).__name__}: {error}")

    def _fail(self, index: int, path: str, expected: Value, got: Value) -> None:
        at = f"steps[{index}].{path}"
        document = {"steps": {index: {path: got}}}
        step = self._document.steps[index] if index < len(self._document.steps) else {}
        row = self._judge.difference(paths.parse(at), step, document)
        if row is not None:
            self._outcome.differences[at, row.reason] = row.reason
        else:
            self._outcome.failures.append(Failure(self._document.name, index, at, expected, got))

    # --- requests -------------------------------------------------------------------------------------------------------

    def _request(self, index: int, step: dict[str, Value]) -> None:
        api, recorded = step["api"], step["response"]
        request = self._own_names(self._lab.own_paths(step["request"]))
        if recorded is None:
            self._expect_refusal(index, step, lambda: self._door.ask(self._lab, self._destination(index, step), step, request))
            return
        patience_s = PATIENCE_S if not self._outcome.failures else PATIENCE_AFTER_FAILURE_S
        if self._waits_for_next:
            self._waits_for_next, patience_s = False, self._wait_s
        deadline = time.monotonic() + patience_s
        while True:
            response = self._door.ask(self._lab, self._destination(index, step), step, request)
            self._learn_ids(step, response)
            ours = self._answer(step, response)
            found = self._compare(index, step, ours)
            is_repeatable = is_question(api) or (has_no_coordinator(response) and not has_no_coordinator(recorded))
            if not found or not is_repeatable or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self._outcome.failures += [
            Failure(self._document.name, index, paths.write(item.path), item.expected, item.got) for item in found
        ]

    def _destination(self, index: int, step: dict[str, Value]) -> int | str:
        to: int | str = step["to"]
        if self._tolerance.coordinators and isinstance(to, int):
            group = next(iter(self._tolerance.coordinators.values()))
            return (
                self._lab.no_coordinator() if has_no_coordinator(step["response"]) else self._door.coordinator(self._lab, group)
            )
        if not isinstance(to, int) or to not in self._lab.cluster.controller_ids:
            return to
        recorded = step["response"] or {}
        is_told = {None, index} & self._tolerance.is_any_standby
        return self._lab.any_standby() if is_told or recorded.get("error_code") in _STANDBY_CODES else to

    def _own_names(self, value: Value) -> Value:
        """Return a recorded request with our ids for its placeholders and fetch sessions."""
        if isinstance(value, list):
            return [self._own_names(item) for item in value]
        if isinstance(value, dict):
            own = {name: self._own_names(item) for name, item in value.items()}
            if "session_id" in own:
                own["session_id"] = self._sessions.get(own["session_id"], own["session_id"])
            return own
        if is_placeholder(value):
            own_id = self._placeholders.get(value)
            if own_id is None:
                raise LabFault(f"our value of {value} is needed, and no answer has had it")
            return own_id
        return short_id(value) if is_uuid(value) else value

    def _learn_ids(self, step: dict[str, Value], response: dict[str, Value]) -> None:
        if step["response"].get("session_id") and response.get("session_id"):
            self._sessions[step["response"]["session_id"]] = response["session_id"]
        if step["api"] == "CreateTopics":
            for topic in response["topics"]:
                if topic["error_code"] == ErrorCode.NONE and topic.get("topic_id"):
                    self._placeholders.learn(topic_id_of(topic["name"]), topic["topic_id"])

    def _answer(self, step: dict[str, Value], response: dict[str, Value]) -> dict[str, Value]:
        return trims.apply(step.get("trimmed", ()), self._lab.recorded_paths(response), self._is_own_topic)

    def _is_own_topic(self, name: str) -> bool:
        return f'"{name}"' in self._document.text

    def _compare(self, index: int, step: dict[str, Value], ours: dict[str, Value]) -> list[Mismatch]:
        """Return unintended mismatches, and note intended ones."""
        path: Path = ("steps", index, "response")
        recorded, got = step["response"], ours
        if step["api"] == "DescribeLogDirs":
            recorded, got = (self._with_free_dirs(answer, step["to"]) for answer in (recorded, got))
        tolerance = tolerances.of(self._document.volatile)
        tolerance.names, tolerance.unordered = set(self._tolerance.names), list(self._tolerance.unordered)
        trims.add_order(step.get("trimmed", ()), tolerance)
        tolerances.add_order_of_all(step, tolerance)
        left = []
        differences: dict[tuple[str, str], str] = {}
        texts = []
        document = {"steps": {index: {"response": ours}}}
        for mismatch in Comparison(step["api"], tolerance, self._placeholders).mismatches(recorded, got, path):
            row = self._judge.difference(mismatch.path, step, document)
            text = self._judge.text(step["api"], mismatch)
            if row is not None:
                differences[paths.write(mismatch.path), row.reason] = row.reason
            elif text is not None:
                texts.append(
                    {
                        "scenario": self._document.name,
                        "path": paths.write(mismatch.path),
                        "expected": mismatch.expected,
                        "got": mismatch.got,
                        "reason": text.reason,
                    }
                )
            else:
                left.append(mismatch)
        if not left:
            self._outcome.differences |= differences
            self._outcome.texts += texts
        return left

    def _with_free_dirs(self, response: dict[str, Value], broker: int | str) -> dict[str, Value]:
        """Return a DescribeLogDirs answer with the replicas in freely chosen dirs moved to `anywhere`."""
        results, anywhere = [], []
        for result in response.get("results") or ():
            topics = []
            for topic in result["topics"]:
                free = [item for item in topic["partitions"] if self._is_dir_free(broker, topic["name"], item["partition_index"])]
                kept = [item for item in topic["partitions"] if item not in free]
                anywhere += [{"name": topic["name"], **item} for item in free]
                if kept:
                    topics.append({**topic, "partitions": kept})
            results.append({**result, "topics": topics})
        anywhere.sort(key=lambda item: (item["name"], item["partition_index"], item["is_future_key"]))
        return {**response, "results": results, "anywhere": anywhere}

    def _is_dir_free(self, broker: int | str, topic: str, partition: int) -> bool:
        """Return whether the broker chose the dir of a replica itself, by the free space."""
        if self._tolerance.is_log_dir_free or (topic, partition) in self._tolerance.unplaced:
            return True
        return (broker, topic, partition) not in self._placed

    def _expect_refusal(self, index: int, step: dict[str, Value], ask: Callable[[], dict[str, Value]]) -> None:
        """Expect a refusal of the whole request, where Kafka closed the connection or gave no answer."""
        try:
            response = ask()
        except NoAnswer:
            return
        codes = error_codes(response)
        if not is_refusal(response) and (step.get("transport") != SILENT or not codes or 0 in codes):
            self._fail(index, "transport", step.get("transport", "no answer"), response)

    # --- actions --------------------------------------------------------------------------------------------------------

    @property
    def _wait_s(self) -> float:
        return WAIT_AFTER_FAILURE_S if self._outcome.failures else WAIT_S

    def _act(self, index: int, step: dict[str, Value]) -> None:
        action = step["action"]
        lab = self._lab
        if action == "create_topic":
            topic_id = lab.create_topic(step["topic"], step["assignment"], step.get("configs") or {})
            self._placeholders.learn(topic_id_of(step["topic"]), topic_id)
        elif action == "set_topic_configs":
            lab.alter_configs(TOPIC, step["topic"], step["configs"])
        elif action == "delete_topic_configs":
            lab.alter_configs(TOPIC, step["topic"], dict.fromkeys(step["names"]))
        elif action == "produce":
            lab.produce(step["topic"], step["partition"], step["bytes"])
        elif action == "remember_log_dir":
            lab.remember_log_dir(step["broker"], step["dir"], step["topic"], step["partitions"])
        elif action in ("stop_broker", "kill_broker"):
            group = self._tolerance.coordinators.get(step["broker"])
            broker = step["broker"] if group is None else self._door.coordinator(lab, group)
            self._stopped[step["broker"]] = broker
            lab.stop_broker(broker, kill=action == "kill_broker")
        elif action == "start_broker":
            named: int = step["broker"]
            lab.start_broker(self._stopped.get(named, named))
        elif action == "kill_controller":
            lab.kill_controller()
        elif action == "start_controller":
            lab.start_controller()
        elif action in ("await", "observe"):
            is_expected = not self._judge.expects(("steps", index, "action"), step)
            self._watch(step["what"], self._wait_s if is_expected else WAIT_IN_VAIN_S, is_negative=action == "observe")
        else:
            self._fail(index, "action", "an action that this runner knows", action)

    def _watch(self, what: str, timeout_s: float, *, is_negative: bool) -> None:
        is_true = sentences.question(what)
        if is_true is None:
            self._waits_for_next = True
            self._outcome.notes.append(f"not understood, so the next request was waited for: {what}")
        elif is_negative:
            sentences.observe(self._lab, what, is_true)
        else:
            self._lab.wait_until(what, lambda: is_true(self._lab), timeout_s)


def error_codes(value: Value) -> list[int]:
    """Return all error codes in an answer."""
    if isinstance(value, dict):
        own = [value["error_code"]] if "error_code" in value else []
        return own + [code for item in value.values() for code in error_codes(item)]
    return [code for item in value for code in error_codes(item)] if isinstance(value, list) else []


def is_refusal(response: dict[str, Value]) -> bool:
    """Return whether an answer refuses the whole request: by its own error, or by that of all its entries."""
    if response.get("error_code"):
        return response["error_code"] in _REFUSED
    entries = [entry for value in response.values() if isinstance(value, list) for entry in value]
    return bool(entries) and all(isinstance(entry, dict) and entry.get("error_code") in _REFUSED for entry in entries)


def summary(outcome: Outcome) -> str:
    """Return the failures of a scenario as lines."""
    return "\n".join(describe(Mismatch(paths.parse(failure.path), failure.expected, failure.got)) for failure in outcome.failures)


__all__ = ["ABSENT", "Run", "is_question", "summary"]
