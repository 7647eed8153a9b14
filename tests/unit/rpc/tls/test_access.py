"""Which role may serve and call a method, by the table alone."""

import pytest

from baton.rpc.tls.access import ACCESS, may_call, may_serve
from baton.rpc.tls.identity import ROLES, Peer

SERVERS = {
    "WorkerService": "prefill decode",
    "RouterService": "router",
    "KvEventService": "kvstore prefill decode",
    "KvStoreService": "kvstore",
    "Health": " ".join(ROLES),
    "ServerReflection": " ".join(ROLES),
}
"""Said again here, so that a change of the table is meant."""


@pytest.mark.parametrize("service", ACCESS)
def test_roles_that_serve(service: str) -> None:
    expected = SERVERS[service.rpartition(".")[2]].split()
    found = [role for role in sorted(ROLES) if may_serve(peer(role), f"/{service}/Any")]
    assert found == sorted(expected)
    assert not may_serve(peer(), f"/{service}/Any")


@pytest.mark.parametrize("path", ["/baton.internal.v1.Other/Get", "/baton.v1.InferenceService/Get"])
def test_what_the_table_does_not_name(path: str) -> None:
    assert not may_serve(peer(*ROLES), path)
    assert not may_call(peer(*ROLES), path)


def test_a_new_method_is_nobodys() -> None:
    assert not may_call(peer(*ROLES), "/baton.internal.v1.KvStoreService/Other")


def peer(*roles: str) -> Peer:
    return Peer(frozenset(roles), ())
