"""Faults of etcd: it goes down, with or without its data."""

import asyncio
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.tenants import DEFAULT_TENANT
from baton.internal.v1.cluster_pb2 import TenantPolicy
from baton.settings import EtcdSettings
from bench.faults.rows.base import Rows
from bench.faults.scene import Scene
from bench.harness.fleet import is_ready

ROWS = Rows()
row = ROWS.add


@row("etcd-away", "etcd down for 15 s")
async def _etcd_away(scene: Scene) -> dict[str, Any]:
    away = await scene.lose_etcd(15, data=False)
    await asyncio.sleep(3)
    return {"away": away, "seconds": 15}


@row("etcd-lost", "etcd down for 3 s, restarted without its data")
async def _etcd_lost(scene: Scene) -> dict[str, Any]:
    before = await _salt(scene)
    away = await scene.lose_etcd(3, data=True)
    await asyncio.sleep(6)
    return {"away": away, "seconds": 3, "salt_is_the_same": await _salt(scene) == before != b""}


async def _salt(scene: Scene) -> bytes:
    """Return the tenant's secret for KV keys, from etcd; empty: there is none."""
    async with Etcd(scene.fleet.etcd.endpoints) as etcd:
        stored = await etcd.get(keys.tenant(EtcdSettings().cluster, DEFAULT_TENANT))
    return keys.decode(TenantPolicy, stored).cache_salt if stored else b""


@row("start-without-etcd", "a frontend and a router started while etcd is down")
async def _start_without_etcd(scene: Scene) -> dict[str, Any]:
    frontend, router = scene.fleet["frontend-1"], scene.fleet["router-1"]
    for member in (frontend, router):
        await scene.fleet.terminate(member.id)
    await scene.fleet.etcd.kill()
    await scene.fleet.start(frontend.id, router.id)
    await scene.tell_pids()
    not_ready = True
    for _ in range(20):
        await asyncio.sleep(0.25)
        not_ready = not_ready and not await is_ready(frontend)
    await scene.fleet.etcd.start()
    back = await scene.fleet.wait_ready(frontend.id, router.id)
    return {"never_ready_before": not_ready, "ready_after_seconds": round(back, 2)}
