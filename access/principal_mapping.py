"""Principal names from distinguished names: `ssl.principal.mapping.rules` (KIP-371).

Theory of operation. A list of rules is parsed when a node starts. `DEFAULT` takes the whole name. `RULE:PATTERN/REPLACEMENT/`
applies if the pattern matches the whole name; then every match in the name is replaced, as by Java's `replaceAll`, so that an
unanchored `.*` replaces twice. `L` or `U` at the end changes the case. The first rule that applies wins.

Patterns are written for Java. `_translated` rewrites what Python spells differently, and refuses what `re` cannot do or would
read in another way, so that no rule gives a certificate another name than in Kafka. Patterns can backtrack: longer names than
`NAME_MAX` are refused.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import NamedTuple

from .distinguished_name import UnreadableCertificate, distinguished_name
from .users import ANONYMOUS, PRINCIPAL_TYPE

NAME_MAX = 1000
"""Characters of the longest distinguished name that rules are applied to."""

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_JAVA_BLANKS = "".join(map(chr, range(0x21)))

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
"""Characters that `.` does not match in Java."""
_TOKEN = re.compile(r"\\(?:[0-9]+|.)|\(\?(?:<(?=[A-Za-z])|[A-Za-z-]*[:)]|P|#|\()?|\[\^?\]?|&&|.", re.DOTALL)
_ESCAPES = frozenset("AdDsSwWntrfaxuZ123456789")
_NOT_IN_CLASSES = frozenset("AZ123456789")
"""Letters and digits after a backslash that mean the same in both languages; `Z` is the end of the name here. Not `b`, which
releases of Java read differently.
"""
_REFERENCE = re.compile(
    r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|(?P<text>[^\\$]+)", re.DOTALL
)


class MappingError(ValueError):
    """Rules, or a name that they are applied to, cannot be used. The text names the fault."""


class InvalidRule(MappingError):
    """A node must not start with these rules."""


class NoPrincipal(MappingError):
    """The rules give a certificate's name no principal: its connection has to be refused."""


class _Group(NamedTuple):
    """The place of a group of the pattern in a replacement."""

    number: int


@dataclass(frozen=True)
class _Rule:
    """One rule. `pattern` is None for DEFAULT."""

    text: str
    pattern: re.Pattern[str] | None = None
    replacement: tuple[str | _Group, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the new name, None if the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = _replace_all(self.pattern, self.replacement, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


@dataclass(frozen=True)
class PrincipalMapping:
    """The rules of a listener, in order."""

    rules: tuple[_Rule, ...]

    def name(self, distinguished_name: str) -> str:
        """Return the name of the principal, without `User:`. NoPrincipal."""
        if len(distinguished_name) > NAME_MAX:
            raise NoPrincipal(
                f"the name has {len(distinguished_name)} characters, more than {NAME_MAX}; use a certificate with a shorter name"
            )
        if not distinguished_name.isprintable():
            raise NoPrincipal(f"the name {distinguished_name!r} has characters that cannot be printed; use a certificate without")
        for rule in self.rules:
            found = rule.apply(distinguished_name)
            if found == "":
                raise NoPrincipal(f"{rule.text} leaves nothing of {distinguished_name!r}; change the rule's replacement")
            if found is not None:
                return found
        texts = ", ".join(rule.text for rule in self.rules)
        raise NoPrincipal(f"No rules apply to {distinguished_name}, rules [{texts}]")

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a caller with this certificate in DER; ANONYMOUS without one. NoPrincipal."""
        if certificate is None:
            return ANONYMOUS
        try:
            return f"{PRINCIPAL_TYPE}:{self.name(distinguished_name(certificate))}"
        except UnreadableCertificate as error:
            raise NoPrincipal(str(error)) from error


def _replace_all(pattern: re.Pattern[str], replacement: tuple[str | _Group, ...], name: str) -> str:
    """Replace every match as Java does: after an empty match the next one begins a character later, unlike in `re.sub`."""
    parts: list[str] = []
    copied = at = 0
    while at <= len(name) and (match := pattern.search(name, at)) is not None:
        parts.append(name[copied : match.start()])
        parts += [(match[part.number] or "") if isinstance(part, _Group) else part for part in replacement]
        copied = match.end()
        at = copied + (copied == match.start())
    return "".join((*parts, name[copied:]))


def parse_rules(text: str) -> PrincipalMapping:
    """Return the rules of `ssl.principal.mapping.rules`. InvalidRule."""
    rules = (match[1] for match in _SPLITTER.finditer(text.strip(_JAVA_BLANKS)))
    return PrincipalMapping(tuple(_parsed(rule) for rule in rules if rule))


def _parsed(rule: str) -> _Rule:
    match = _PARSER.match(rule)
    if match is None or match.end() < len(rule):
        unmatched = rule[match.end() if match else 0 :]
        raise InvalidRule(
            f"Invalid rule: `{rule}`, unmatched substring: `{unmatched}`; expected DEFAULT or RULE:PATTERN/REPLACEMENT/, "
            "then L, U or nothing"
        )
    if match[1]:
        return _Rule("DEFAULT")
    source, replacement, case = match[2], match[3], match[4]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a pattern that another release of Python may read differently
            pattern = re.compile(_translated(source), re.ASCII)
        parts = _replacement(replacement, pattern)
    except (ValueError, Warning, re.error, RecursionError, OverflowError) as error:
        raise InvalidRule(f"Invalid rule: `{rule}`, {error or type(error).__name__}") from None
    return _Rule(f"RULE:{source}/{replacement}" + (f"/{case}" if case else ""), pattern, parts, case)


def _translated(source: str) -> str:
    """Return a pattern of Java in Python's language. ValueError for one that `re` reads differently."""
    parts: list[str] = []
    in_class = False
    for match in _TOKEN.finditer(source):
        token = match[0]
        if token[0] == "\\":
            if token[1:].isalnum() and (token[1:] not in _ESCAPES or (in_class and token[1:] in _NOT_IN_CLASSES)):
                raise ValueError(f"{token} is not supported{' in a class' if in_class else ''}; write the characters themselves")
            parts.append(token)
        elif in_class:
            if token[0] == "[" or token == "&&":
                raise ValueError("classes within classes are not supported; write one class")
            in_class = token != "]"
            parts.append(token)
        elif token[0] == "[":
            in_class = True
            parts.append(token)
        elif token == "(?<":
            parts.append("(?P<")
        elif token == "(?i)" and parts:
            raise ValueError("(?i) is supported at the beginning only; write (?i:…) around a part of the pattern")
        elif len(token) > 2 and token[:2] == "(?" and token not in ("(?i)", "(?i:", "(?:"):
            raise ValueError(f"{token} is not supported; of the flags only (?i) and (?i:…) are")
        else:
            parts.append({".": f"[^{_LINE_ENDS}]", "$": r"\Z"}.get(token, token))
    return "".join(parts)


def _replacement(text: str, pattern: re.Pattern[str]) -> tuple[str | _Group, ...]:
    """Return the parts of a replacement: literal text, and groups of the pattern. ValueError."""
    parts: list[str | _Group] = []
    at = 0
    while at < len(text):
        match = _REFERENCE.match(text, at)
        if match is None:
            raise ValueError(f"{text[at]} at the end or before {text[at + 1 : at + 2]!r} is not a reference; write \\{text[at]}")
        at = match.end()
        if match["number"]:
            parts += _numbered(match["number"], pattern.groups)
        elif match["name"]:
            if match["name"] not in pattern.groupindex:
                raise ValueError(f"No group with name {{{match['name']}}}; name it (?<{match['name']}>…), or write \\$")
            parts.append(_Group(pattern.groupindex[match["name"]]))
        else:
            parts.append(match["literal"] or match["text"])
    return tuple(parts)


def _numbered(digits: str, groups: int) -> tuple[str | _Group, ...]:
    """Return the parts of `$10`: group 10, or group 1 and a 0 if there are fewer groups. A group beyond them is literal text."""
    if int(digits[0]) > groups:
        if groups == 0:
            raise ValueError(f"No group {digits[0]}; write parentheses into the pattern, or \\$ for a dollar sign")
        return (f"${digits}",)
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= groups:
        used += 1
    return _Group(int(digits[:used])), digits[used:]
