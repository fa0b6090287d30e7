"""The language of `sasl.jaas.config`: a login module, a flag, and options, with a semicolon at the end.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob='"';

Words, quotes and escapes are those of Java's tokenizer, which Kafka uses: a quoted value may have any character but a new line.
Errors name the place, and show no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?:\s | //[^\n]* | /\*.*?\*/)*
        (?: (?P<word>[\w.$-]+) | (?P<sign>[=;]) | (?P<end>\Z)
          | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)' )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class LoginModule(NamedTuple):
    """One entry of the language. The options may have passwords."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {len(self.options)} options)"


class _Token(NamedTuple):
    """`sign` is = or ; or the end, "" for a text."""

    sign: str
    text: str = ""


_ENDING = _Token("end")


def parse_jaas(text: str) -> LoginModule:
    """Parse the value of `sasl.jaas.config`, which has one entry. ConfigError."""
    tokens = _tokens(text)
    name, flag = next(tokens), next(tokens, _ENDING)
    if name.sign:
        raise ConfigError('there is no login module; write MODULE required NAME="VALUE" …;')
    if flag.text.lower() not in _FLAGS:
        raise ConfigError(f"the login module {name.text} has no control flag; write `required` after it")
    options: dict[str, str] = {}
    while (key := next(tokens, _ENDING)).sign != ";":
        if key.sign == "end":
            raise ConfigError("the entry does not end; write ; after the last option")
        equals, value = next(tokens, _ENDING), next(tokens, _ENDING)
        if key.sign or equals.sign != "=" or value.sign:
            raise ConfigError(f'option {len(options) + 1} is not NAME="VALUE"; a value with signs needs quotes')
        options[key.text] = value.text
    if next(tokens, _ENDING) != _ENDING:
        raise ConfigError("there is text after the entry; a listener and mechanism has one login module")
    return LoginModule(name.text, options)


def plain_users(text: str) -> dict[str, str]:
    """Return the passwords by user name of a listener's `plain.sasl.jaas.config`. ConfigError."""
    module = parse_jaas(text)
    if module.name != PLAIN_MODULE:
        raise ConfigError(f"the login module is {module.name}, expected {PLAIN_MODULE}")
    users = {key.removeprefix(USER_PREFIX): value for key, value in module.options.items() if key.startswith(USER_PREFIX)}
    if not users:
        raise ConfigError(f'there are no users; add {USER_PREFIX}NAME="PASSWORD" for each')
    for name, password in users.items():
        if not name or not password:
            raise ConfigError(f"user {name!r} has an empty {'password' if name else 'name'}")
    return users


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while (match := _TOKEN.match(text, position)) is not None:
        position = match.end()
        kind = match.lastgroup or "end"
        if kind == "end":
            yield _ENDING
            return
        found = match[kind]
        yield _Token(found) if kind == "sign" else _Token("", found if kind == "word" else _ESCAPE.sub(_unescaped, found))
    raise ConfigError(f"character {position + 1} does not fit; put values with signs into quotes, and close every quote")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)
