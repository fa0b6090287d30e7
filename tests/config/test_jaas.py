"""The language of sasl.jaas.config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.config.errors import ConfigError
from kraftlab.config.jaas import PLAIN_MODULE, parse_jaas, plain_users

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('user_alice="a b"', {"user_alice": "a b"}),
        ("user_alice='it\"s'", {"user_alice": 'it"s'}),
        (r'user_alice="a\"b\\c"', {"user_alice": 'a"b\\c'}),
        (r'user_alice="\101\n"', {"user_alice": "A\n"}),
        ("user_alice=plain-word", {"user_alice": "plain-word"}),
        ('username="x"\n  password="a;b=c" // a comment\n /* another; one */', {"username": "x", "password": "a;b=c"}),
        ('user_alice=""', {"user_alice": ""}),
        ('user_alice = ";"', {"user_alice": ";"}),
        ("", {}),
    ],
)
def test_options_are_words_or_quotes(options: str, expected: dict[str, str]) -> None:
    assert parse_jaas(f"{PLAIN_MODULE} required {options};").options == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no login module"),
        ("Module", "no control flag"),
        (f'Module user_alice="{SECRET}";', "no control flag"),
        (f'Module required user_alice="{SECRET}"', "does not end"),
        (f'Module required user_alice="{SECRET};', "does not fit"),
        (f"Module required user_alice={SECRET}!;", "does not fit"),
        (f'Module required user_alice "{SECRET}";', "option 1 is not"),
        (f'Module required user_bob="x" user_alice=;{SECRET}', "option 2 is not"),
        (f'Module required; Module required user_alice="{SECRET}";', "text after the entry"),
    ],
)
def test_errors_name_the_place_and_no_value(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_jaas(text)
    assert SECRET not in str(caught.value)


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_a_quoted_value_may_have_any_character(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'Module required key="{quoted}";').options == {"key": value}


def test_users_of_plain_are_the_options_with_their_prefix() -> None:
    text = f'{PLAIN_MODULE} required username="broker" password="p" user_alice="{SECRET}" user_bob="b";'
    assert plain_users(text) == {"alice": SECRET, "bob": "b"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('other.Module required user_alice="a";', "the login module is other.Module, expected"),
        (f'{PLAIN_MODULE} required username="a" password="b";', "there are no users; add user_NAME"),
        (f'{PLAIN_MODULE} required user_alice="";', "user 'alice' has an empty password"),
        (f'{PLAIN_MODULE} required user_="x";', "user '' has an empty name"),
    ],
)
def test_a_listener_needs_users_with_passwords(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plain_users(text)


def test_a_module_prints_without_its_options() -> None:
    assert SECRET not in repr(parse_jaas(f'Module required user_alice="{SECRET}";'))
