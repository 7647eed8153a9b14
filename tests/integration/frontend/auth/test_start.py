"""A frontend serves once it knows the keys."""

from contextlib import suppress
from typing import Any

import httpx

from baton.cluster.etcd.local import LocalEtcd
from baton.internal.v1 import cluster_pb2
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.frontend.auth.conftest import bearer
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually


async def test_a_frontend_without_etcd_is_not_ready_and_says_why(
    empty_stage: Any, etcd: LocalEtcd
) -> None:
    stage = empty_stage
    admin = Administration(stage.client, stage.cluster)
    await admin.create_tenant("acme", Tier.PRO)
    _, secret = await admin.create_key(await admin.find_project("acme", "default"))
    await stage.add("d0", cluster_pb2.ROLE_DECODE)
    async with TcpProxy(etcd.endpoints[0]) as proxy:
        await proxy.cut()
        endpoints = (proxy.address,)
        settings = {"auth.mode": "keys", "etcd.endpoints": endpoints, "etcd.timeout_seconds": 1}
        await stage.begin_frontend(settings)

        def missing() -> dict[str, str]:
            with suppress(AssertionError):  # it has no process yet
                return dict(stage.frontend.process.readiness.states())
            return {}

        await eventually(lambda: "API keys are not loaded" in missing().get("keys", ""))
        assert not stage.frontend.process.readiness.ready
        await proxy.mend()
        await eventually(lambda: missing().get("keys") == "")
        async with httpx.AsyncClient(base_url=stage.http_url) as client:

            async def served() -> bool:
                with suppress(httpx.ConnectError):
                    answer = await client.get("/v1/models", headers=bearer(secret))
                    return answer.status_code == 200
                return False

            await eventually(served)
        await stage.frontend.stop()
