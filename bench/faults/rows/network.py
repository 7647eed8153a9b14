"""Faults of the network: links that are slow, lossy, half open or dead."""

import asyncio
from typing import Any

from bench.faults.links import Rule
from bench.faults.rows.base import Act, Rows
from bench.faults.scene import Scene

ROWS = Rows()
row = ROWS.add


def _links(kind: str, lasting: float, *rules: tuple[str, str], **options: Any) -> Act:
    async def act(scene: Scene) -> dict[str, Any]:
        before = (await scene.struck()).get(kind, 0)
        made = []
        in_use = await scene.router_in_use()
        for client, server in rules or (("*", "*"),):
            server = server.replace("router-?", in_use.id)
            server = server.replace("?", str(scene.draw.randrange(2)))
            client = client.replace("?", str(scene.draw.randrange(2)))
            made.append(Rule(kind, client, server, **options))  # type: ignore[arg-type]
        await scene.break_links(*made)
        await asyncio.sleep(lasting)
        await scene.break_links()
        struck = (await scene.struck()).get(kind, 0) - before
        await asyncio.sleep(2)
        return {"struck": struck, "links": [f"{r.client} > {r.server}" for r in made]}

    return act


row("delay", "5–30 ms of latency added to every connection")(
    _links("delay", 6, seconds=0.005, jitter_seconds=0.025)
)
row("loss", "1 of 50 chunks on every connection delayed by 0.2 s")(
    _links("stall", 6, seconds=0.2, share=0.02)
)
row("resets", "connections reset at 1 of 200 chunks", gap_seconds=4)(
    _links("reset", 6, share=0.005)
)
row("half-open", "half-open connections to a decode worker", gap_seconds=5)(
    _links("half-open", 8, ("*", "decode-?"))
)
row("black-hole-decode", "connections to a decode worker blackholed for 8 s", gap_seconds=8)(
    _links("black-hole", 8, ("*", "decode-?"))
)
row("black-hole-store", "connections to a KV store blackholed for 8 s", gap_seconds=8)(
    _links("black-hole", 8, ("*", "kvstore-?"))
)
row(
    "black-hole-stores",
    "connections between KV stores, and from prefill workers to one, blackholed for 8 s",
    gap_seconds=8,
)(_links("black-hole", 8, ("kvstore-*", "kvstore-*"), ("prefill-*", "kvstore-?")))
row("black-hole-router", "connections to a router blackholed for 8 s")(
    _links("black-hole", 8, ("*", "router-?"))
)
row("black-hole-etcd", "connections to etcd blackholed for 12 s")(
    _links("black-hole", 12, ("*", "etcd"))
)
