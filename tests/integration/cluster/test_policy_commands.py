"""`baton policies` against a real etcd."""

import json
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.cluster.test_tenancy_commands import Call, call

__all__ = ["call"]


async def test_policies_are_set_listed_and_removed(
    call: Call, etcd_client: Etcd, cluster: str
) -> None:
    async def read(*words: str) -> Any:
        code, out, err = await call("policies", *words, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out)

    for name in ("small", "org/large"):
        await etcd_client.put(keys.model(cluster, name, "00.00"), b"")
    await Administration(etcd_client, cluster).create_tenant("acme", Tier.PRO)
    who = ("--tenant", "acme", "--class", "batch", "--context", "free=100")
    set_ = await read("set", "org/large", "--fallback", "small", "--wait-seconds", "2", *who)
    assert set_ == {
        "model": "org/large",
        "fallbacks": ["small"],
        "wait_seconds": 2.0,
        "queueing": ["premium"],
        "classes": ["batch"],
        "tenants": ["acme"],
        "context_tokens": {"free": 100},
    }
    assert await read("ls") == [set_]
    for words, sentence in (
        (("set", "smal"), "model: 'smal' is no model or adapter of this cluster, which has: org/l"),
        (("set", "small", "--fallback", "x"), "fallbacks: 'x' is no model or adapter of this"),
        (("set", "small", "--fallback", "org/large"), "fallbacks: they form a circle: small → org"),
        (("set", "small", "--tenant", "nobody"), "tenants: tenant 'nobody' does not exist"),
        (("set", "small", "--context", "free=1k"), "--context 'free=1k' is not TIER=TOKENS"),
        (("set", "a\tb", "--allow-missing"), "model: 'a\\tb' is not the name of a model"),
        (("rm", "small"), "model 'small' has no policy"),
    ):
        code, _, err = await call("policies", *words)
        assert (code, sentence in err) == (2, True), err
    await read("rm", "org/large")
    assert await read("ls") == []
