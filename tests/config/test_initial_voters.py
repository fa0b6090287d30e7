from __future__ import annotations

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import from_text
from kraftlab.config import initial_voters, storage
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import load_any

A, B = "GDAXWlNIRRKoB5wdxbZcYg", "pMTZEsB7QmCgsDzRHlrVcQ"
LIST = f"3000@127.0.0.1:19093:{A},3001@[::1]:19094:{B}"


def test_the_list_gives_every_voter_its_directory_id() -> None:
    voters = initial_voters.parse_initial_controllers(LIST)
    assert voters.ids() == (3000, 3001)
    assert [voter.key.directory_id for voter in voters.voters] == [from_text(A), from_text(B)]
    assert [voter.endpoints for voter in voters.voters] == [
        {"CONTROLLER": Endpoint("127.0.0.1", 19093)},
        {"CONTROLLER": Endpoint("::1", 19094)},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no controller"),
        ("3000", "'3000' is not id@host:port:directory-id"),
        ("3000@h:1", "'3000@h:1' is not id@host:port:directory-id"),
        (f"x@h:1:{A}", "is not id@host:port:directory-id"),
        (f"3000@h:0:{A}", "is not id@host:port:directory-id"),
        (f"3000@:1:{A}", "is not id@host:port:directory-id"),
        ("3000@h:1:short", "'short' is not an id of 22 base64url characters; make one with: kraftlab storage random-uuid"),
        ("3000@h:1:AAAAAAAAAAAAAAAAAAAAAQ", "the directory id is a reserved one"),
        (f"3000@h:1:{A},3000@h:2:{B}", "names controller 3000 twice"),
        (f"3000@h:1:{A},3001@h:2:{A}", "gives controllers 3000 and 3001 the same directory id"),
    ],
)
def test_a_faulty_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        initial_voters.parse_initial_controllers(text)
    assert message in str(raised.value)


def test_a_standalone_controller_is_the_only_voter(dynamic_file) -> None:
    chosen = initial_voters.choose(load_any(dynamic_file()), standalone=True)
    assert chosen.voters is not None
    assert chosen.voters.ids() == (3000,)
    assert chosen.voters.voters[0].key.directory_id == chosen.directory_id
    assert chosen.voters.voters[0].endpoints == {"CONTROLLER": Endpoint("127.0.0.1", 19093)}


def test_a_controller_of_the_list_takes_its_directory_id_from_there(dynamic_file) -> None:
    chosen = initial_voters.choose(load_any(dynamic_file()), initial_controllers=LIST)
    assert chosen.directory_id == from_text(A)
    assert chosen.voters is not None
    assert chosen.voters.ids() == (3000, 3001)


def test_a_controller_that_joins_later_and_a_broker_have_no_voters_to_write(dynamic_file, broker_file, controller_file) -> None:
    for chosen in (
        initial_voters.choose(load_any(dynamic_file()), no_initial_controllers=True),
        initial_voters.choose(load_any(broker_file())),
        initial_voters.choose(load_any(broker_file()), no_initial_controllers=True),
        initial_voters.choose(load_any(controller_file())),
        initial_voters.choose(load_any(controller_file()), no_initial_controllers=True),
    ):
        assert chosen == initial_voters.InitialVoters()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers.",
        ),
        (
            {"standalone": True, "initial_controllers": LIST},
            "--initial-controllers is not allowed with --standalone; give one of them",
        ),
        (
            {"initial_controllers": f"3001@h:1:{A}"},
            "node 3000 is not among --initial-controllers (3001); name it there, or format it with --no-initial-controllers and "
            "add it to the running quorum later",
        ),
        ({"initial_controllers": f"3000@127.0.0.1:9:{A}"}, "says that controller 3000 listens on 127.0.0.1:9, but"),
    ],
)
def test_a_controller_with_voters_in_the_log_needs_the_right_option(dynamic_file, options, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        initial_voters.choose(load_any(dynamic_file()), **options)
    assert message in str(raised.value)


@pytest.mark.parametrize("options", [{"standalone": True}, {"initial_controllers": LIST}])
def test_static_voters_are_not_formatted_as_dynamic_ones(controller_file, options) -> None:
    with pytest.raises(ConfigError) as raised:
        initial_voters.choose(load_any(controller_file()), **options)
    assert str(raised.value).startswith(
        "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If you want "
        "to use dynamic quorum, please remove controller.quorum.voters and specify controller.quorum.bootstrap.servers instead."
    )


@pytest.mark.parametrize(
    ("options", "option"), [({"standalone": True}, "--standalone"), ({"initial_controllers": LIST}, "--initial-controllers")]
)
def test_a_broker_is_not_formatted_as_a_voter(broker_file, options, option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        initial_voters.choose(load_any(broker_file()), **options)
    assert str(raised.value) == f"You can only use {option} on a controller."


def test_a_directory_that_is_formatted_does_not_become_another_voter(dynamic_file) -> None:
    config = load_any(dynamic_file())
    storage.format(config, "lab")
    with pytest.raises(ConfigError, match="so it is not the voter that --initial-controllers names"):
        storage.format(config, "lab", True, initial_voters.choose(config, initial_controllers=LIST))
