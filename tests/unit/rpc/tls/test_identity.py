"""Which role a certificate's names say."""

import pytest

from baton.rpc.tls.identity import peer_named

SPIFFE = "spiffe://baton/ns/prod/sa/router"


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        ([("DNS", "router.baton")], {"router"}),
        ([("DNS", "ROUTER.Baton")], {"router"}),
        ([("DNS", "prefill.baton"), ("DNS", "decode.baton")], {"prefill", "decode"}),
        ([("URI", SPIFFE)], {"router"}),
        ([("URI", "spiffe://baton/router")], {"router"}),
        ([("URI", SPIFFE), ("DNS", "operator.baton")], {"router"}),
        ([("URI", SPIFFE), ("URI", "spiffe://baton/operator")], set()),
        ([("URI", "spiffe://other/router"), ("DNS", "router.baton")], set()),
        ([("URI", "spiffe://baton/router/")], set()),
        ([("URI", "spiffe://baton.evil/router")], set()),
        ([("URI", "https://baton/router"), ("DNS", "router.baton")], {"router"}),
        ([("DNS", "router.baton.svc")], set()),
        ([("DNS", "router.other")], set()),
        ([("DNS", "*.baton")], set()),
        ([("DNS", "router")], set()),
        ([("DNS", "baton")], set()),
        ([("IP Address", "127.0.0.1"), ("email", "router@baton")], set()),
        ([("DNS", "spiffe://baton/operator")], set()),
        ([("email", "router.baton")], set()),
        ([], set()),
    ],
)
def test_roles(names: list[tuple[str, str]], roles: set[str]) -> None:
    assert peer_named(names, "baton").roles == roles


def test_roles_of_another_trust_domain() -> None:
    names = [("DNS", "router.prod.example"), ("DNS", "operator.baton")]
    assert peer_named(names, "prod.example").roles == {"router"}
