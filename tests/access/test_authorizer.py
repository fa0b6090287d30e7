"""Rights of a caller: settings, sets of operations, users of a listener."""

from __future__ import annotations

import pytest

from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.access.users import AuthenticationFailed, Users, parse_principals, parse_users
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.acls import CLUSTER_NAME, Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NO_RULES = AclsImage()


def acls(*rules: tuple[ResourceType, str, Operation, PermissionType]) -> AclsImage:
    made = [Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, how) for kind, name, operation, how in rules]
    return AclsImage().after({bytes([number]) * 16: acl for number, acl in enumerate(made)})


def allow(kind: ResourceType, name: str, operation: Operation) -> tuple[ResourceType, str, Operation, PermissionType]:
    return kind, name, operation, PermissionType.ALLOW


def deny(kind: ResourceType, name: str, operation: Operation) -> tuple[ResourceType, str, Operation, PermissionType]:
    return kind, name, operation, PermissionType.DENY


def rights(image: AclsImage, principal: str = "User:alice", **settings: object) -> Rights:
    made = AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"}), **settings)  # type: ignore[arg-type]
    return Authorizer(made).rights(image, principal, "127.0.0.1")


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    free = Authorizer(AccessSettings()).rights(None, "User:ANONYMOUS", "10.0.0.1")
    assert free.are_unlimited and free.allow_on_cluster(Operation.ALTER)
    assert free.allow_any(Operation.WRITE, TOPIC)
    assert free.operations(TOPIC, "t") == 3576


def test_a_super_user_may_do_denied_operations() -> None:
    everything = rights(acls(deny(TOPIC, "*", Operation.ALL)), "User:admin")
    assert everything.allow(Operation.DELETE, TOPIC, "t")


def test_a_resource_without_acls_is_open_to_nobody_or_to_everybody() -> None:
    assert not rights(NO_RULES).allow(Operation.READ, TOPIC, "t")
    assert rights(NO_RULES, allows_if_no_rules=True).allow(Operation.READ, TOPIC, "t")
    assert rights(NO_RULES, allows_if_no_rules=True).operations(TOPIC, "t") == 3576


def test_an_acl_of_one_principal_closes_the_resource_to_all_others() -> None:
    image = acls(allow(TOPIC, "t", Operation.READ))
    assert not rights(image, "User:bob", allows_if_no_rules=True).allow(Operation.READ, TOPIC, "t")
    assert rights(image, "User:bob", allows_if_no_rules=True).allow(Operation.READ, TOPIC, "other")


def test_before_the_metadata_is_loaded_only_super_users_pass() -> None:
    authorizer = Authorizer(AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"})))
    assert authorizer.rights(None, "User:admin", "h").allow_on_cluster(Operation.ALTER)
    with pytest.raises(ApiError, match="try again") as refused:
        authorizer.rights(None, "User:alice", "h")
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_rules_are_those_of_the_image_that_was_given_last() -> None:
    authorizer = Authorizer(AccessSettings(is_enabled=True))
    image = acls(allow(TOPIC, "t", Operation.READ))
    assert authorizer.rights(image, "User:alice", "h").allow(Operation.READ, TOPIC, "t")
    assert not authorizer.rights(NO_RULES, "User:alice", "h").allow(Operation.READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("operation", "bits"),
    [
        (Operation.ALL, 3576),
        (Operation.ALTER, 384),
        (Operation.DELETE, 320),
        (Operation.READ, 264),
        (Operation.ALTER_CONFIGS, 3072),
    ],
)
def test_operations_on_a_topic_as_bits(operation: Operation, bits: int) -> None:
    assert rights(acls(allow(TOPIC, "t", operation))).operations(TOPIC, "t") == bits


@pytest.mark.parametrize(
    ("rules", "bits"),
    [
        ([allow(CLUSTER, CLUSTER_NAME, Operation.ALL)], 8096),
        ([allow(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)], 256),
        ([allow(CLUSTER, CLUSTER_NAME, Operation.ALL), deny(CLUSTER, CLUSTER_NAME, Operation.ALTER)], 7968),
        ([], 0),
    ],
)
def test_operations_on_the_cluster_as_bits(rules: list[tuple[ResourceType, str, Operation, PermissionType]], bits: int) -> None:
    assert rights(acls(*rules)).operations(CLUSTER, CLUSTER_NAME) == bits


# --- users -------------------------------------------------------------------------------------------------------------------

USERS = Users(parse_users("alice:alice-secret, bob:b:ob"))


def test_a_right_password_proves_the_user() -> None:
    assert USERS.principal("alice", "alice-secret") == "User:alice"
    assert USERS.principal("bob", "b:ob") == "User:bob"


def test_a_caller_without_a_name_is_anonymous() -> None:
    assert USERS.principal(None, None) == "User:ANONYMOUS"


@pytest.mark.parametrize(("name", "password"), [("alice", "x"), ("mallory", "x"), ("alice", None), (None, "x"), ("", "")])
def test_wrong_names_and_passwords_are_refused(name: str | None, password: str | None) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        USERS.principal(name, password)
    assert "alice-secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["alice", "alice:", ":secret", "a:b,,c:d", "a:b,a:c", "ä:b", "a:b\tc"])
def test_a_list_of_users_that_is_not_one_is_refused_without_showing_passwords(text: str) -> None:
    with pytest.raises(ValueError, match=r"entry \d is not|has characters|is listed twice") as refused:
        parse_users(text)
    assert "secret" not in str(refused.value)


def test_principals_are_separated_by_semicolons() -> None:
    assert parse_principals("User:ANONYMOUS; User:CN=a,O=b") == {"User:ANONYMOUS", "User:CN=a,O=b"}
    with pytest.raises(ValueError, match="'admin' is not Type:name"):
        parse_principals("admin")
