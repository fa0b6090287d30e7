"""`ssl.principal.mapping.rules` against what Apache Kafka 4.3's own class answered, and where we refuse more than Kafka does."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.access.principal_mapping import NAME_MAX, InvalidRule, MappingError, NoPrincipal, parse_rules

RECORDED = json.loads((Path(__file__).parent / "data" / "mapping-rules.json").read_text())["steps"]
DEPARTURES = {
    "RULE:^CN=(.*?),.*$//": "leaves nothing of",
    "RULE:^(?i)cn=(.*?),.*$/$1/": "(?i) is supported at the beginning only",
}
"""Rules that Kafka accepts → part of our refusal."""
SERVICE = "CN=service,OU=Users"

PIECES = [
    "RULE:",
    "DEFAULT",
    "/",
    ",",
    "\\",
    "$",
    "(",
    ")",
    "[",
    "]",
    "^",
    ".",
    "*",
    "+",
    "?",
    "{",
    "}",
    "1",
    "0",
    "L",
    "U",
    "&&",
]
PIECES += ["(?<n>", "(?i)", "(?P<n>", "${n}", "$1", "CN=", " ", "\n", "a", "ß", "\x85", "\\d", "\\Q", "-", "|"]
RULES = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES)).map("".join),
    st.lists(st.sampled_from(PIECES)).map(lambda pieces: f"RULE:{''.join(pieces)}/$1/,DEFAULT"),
    st.lists(st.sampled_from(PIECES)).map(lambda pieces: f"RULE:^CN=(.*?)(,.*)?$/{''.join(pieces)}/"),
)


def outcome(rules: str, name: str) -> str:
    """Return the name, or the refusal."""
    try:
        return parse_rules(rules).name(name)
    except MappingError as error:
        return f"refused: {error}"


@pytest.mark.parametrize("step", RECORDED, ids=lambda step: f"{step['rules']} {step['distinguished_name'][:16]}")
def test_rules_answer_as_recorded(step: dict[str, str]) -> None:
    answer = outcome(step["rules"], step["distinguished_name"])
    kind, _, text = step.get("error", "").partition(": ")
    if not step["distinguished_name"].isprintable():  # Kafka writes such names into its log as they are.
        assert answer.startswith("refused: ")
        assert "cannot be printed" in answer
    elif step["rules"] in DEPARTURES:
        assert answer.startswith("refused: ")
        assert DEPARTURES[step["rules"]] in answer
    elif "name" in step:
        assert answer == step["name"]
    elif kind in ("IllegalArgumentException", "NoMatchingRule"):
        assert text in answer
        assert answer.startswith(
            "refused: Invalid rule: " if kind == "IllegalArgumentException" else "refused: No rules apply to"
        )
    else:
        assert kind in ("PatternSyntaxException", "IndexOutOfBoundsException")
        assert answer.startswith(f"refused: Invalid rule: `{step['rules']}`, ")


def test_all_cases_are_played() -> None:
    assert len(RECORDED) == 52
    assert {step["rules"] for step in RECORDED} >= DEPARTURES.keys()


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        (r"^CN=\p{L}+$", r"\p is not supported"),
        (r"^CN=\QA\E$", r"\Q is not supported"),
        (r"^CN=a\b.*$", r"\b is not supported"),
        (r"^CN=([a-z&&[^b]]+)$", "write one class"),
        (r"^CN=([a[bc]]+)$", "write one class"),
        (r"(?s)^CN=(.*)$", "(?s) is not supported"),
        (r"^CN=(?m:.*)$", "(?m: is not supported"),
        (r"^(a)\12$", r"\12 is not supported"),
        (r"^CN=(?P<n>.*)$", "(?P is not supported"),
        (r"^CN=(?<=a|bc).*$", "look-behind requires fixed-width pattern"),
        (r"^CN=((.*)$", "missing )"),
    ],
)
def test_a_pattern_that_python_reads_differently_is_refused_at_start(pattern: str, advice: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        parse_rules(f"RULE:{pattern}/x/,DEFAULT")
    assert str(refused.value).startswith(f"Invalid rule: `RULE:{pattern}/x/`, ")
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("rules", "name", "found"),
    [
        ("RULE:(?i)^cn=(.*?),.*$/$1/", SERVICE, "service"),
        ("RULE:^(?i:cn)=(.*?),.*$/$1/", SERVICE, "service"),
        (r"RULE:^CN=([^\/\]$.]+),.*$/$1/", SERVICE, "service"),
        (r"RULE:^CN=(.*?)(,X=(.*))?,.*$/$1\$$3/", SERVICE, "service$"),
        (r"RULE:^CN=(?<n>.*?),OU=(?<ou>.*)$/${ou}.${n}/U", SERVICE, "USERS.SERVICE"),
        (r"RULE:^CN=((?>[a-z]++)).*$/$1/", SERVICE, "service"),
        ("RULE:(.*?)/-/", "CN=a", "-C-N-=-a-"),  # as Java's replaceAll does, and re.sub does not
        ("RULE:^CN=(.*?),.*$/$15-$01-$0/", SERVICE, "service5-service-CN=service,OU=Users"),
    ],
)
def test_what_both_languages_can_say_is_accepted(rules: str, name: str, found: str) -> None:
    assert parse_rules(rules).name(name) == found


def test_a_name_that_is_too_long_is_refused_before_any_pattern_runs() -> None:
    mapping = parse_rules("RULE:(a+)+b/x/,DEFAULT")
    assert mapping.name("C" * NAME_MAX) == "C" * NAME_MAX
    with pytest.raises(NoPrincipal, match="the name has 1001 characters, more than 1000"):
        mapping.name("a" * (NAME_MAX + 1))


@pytest.mark.parametrize("name", ["CN=x\nERROR all is lost", "CN=x\radmin", "CN=\u202eadmin", "CN=x\x1b[2J"])
def test_a_name_that_cannot_be_printed_is_refused_and_shown_escaped(name: str) -> None:
    """A principal stands in lines of logs and on terminals, and must not be able to make lines of its own there."""
    with pytest.raises(NoPrincipal, match="cannot be printed") as caught:
        parse_rules("DEFAULT").name(name)
    assert str(caught.value).isprintable()


def test_a_caller_is_named_by_its_certificate_and_without_one_anonymous() -> None:
    mapping = parse_rules("RULE:^CN=(.*)$/$1/")
    names = json.loads((Path(__file__).parent / "data" / "distinguished-names.json").read_text())["steps"]
    alice, other = (ssl.PEM_cert_to_DER_cert(names[place]["certificate"]) for place in (0, 6))
    assert mapping.principal(alice) == "User:alice"
    assert mapping.principal(None) == "User:ANONYMOUS"
    with pytest.raises(NoPrincipal, match="No rules apply to UID=alice"):
        mapping.principal(other)
    with pytest.raises(NoPrincipal, match="the certificate cannot be read"):
        mapping.principal(b"")


@given(RULES, st.text())
def test_odd_rules_and_names_are_refused_and_never_crash(rules: str, name: str) -> None:
    try:
        mapping = parse_rules(rules)
    except InvalidRule as error:
        assert str(error).startswith("Invalid rule: `")
        return
    for each in (name[:30], SERVICE, ""):
        try:
            assert mapping.name(each) != ""
        except NoPrincipal as error:
            assert str(error)
