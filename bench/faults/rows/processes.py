"""Faults of processes: killed, frozen, or with a shifted clock."""

import asyncio
import signal
from dataclasses import replace
from typing import Any

from baton.cli.cluster.local.processes.watchdog import is_stopped
from bench.faults.rows.base import Act, Rows
from bench.faults.scene import Scene
from bench.harness import ROOT
from bench.harness.fleet import Member
from bench.harness.releases import CHECKOUT

CLOCK = ROOT / "bench" / "faults" / "clock"
ROWS = Rows()
row = ROWS.add


@row("nobody", "no fault")
async def _nobody(_: Scene) -> dict[str, Any]:
    await asyncio.sleep(4)
    return {}


async def _killed(scene: Scene, *members: Member, away_seconds: float) -> dict[str, Any]:
    names = [member.id for member in members]
    workers = [m.id for m in members if m.service in ("prefill", "decode")]
    proof: dict[str, Any] = {"streams": await scene.busy(*workers)} if workers else {}
    scene.fleet.kill(*names)
    codes = [await scene.fleet.wait_ended(name) for name in names]
    await asyncio.sleep(away_seconds)
    back = await scene.start(*names)
    return {
        **proof,
        "killed": {n: c == -signal.SIGKILL for n, c in zip(names, codes, strict=True)},
        "ready_again_seconds": round(back, 2),
    }


async def _pick(scene: Scene, service: str) -> Member:
    """Return a random process; of routers, the one in use."""
    return await scene.router_in_use() if service == "router" else scene.pick(service)


def _kill(service: str) -> Act:
    async def act(scene: Scene) -> dict[str, Any]:
        member = await _pick(scene, service)
        return await _killed(scene, member, away_seconds=scene.draw.uniform(0.2, 2))

    return act


def _kill_all(service: str) -> Act:
    async def act(scene: Scene) -> dict[str, Any]:
        members = scene.fleet.of(service)
        return await _killed(scene, *members, away_seconds=scene.draw.uniform(0.5, 2))

    return act


row("prefill-killed", "one prefill worker killed")(_kill("prefill"))
row("decode-killed", "one decode worker killed")(_kill("decode"))
row("store-killed", "one KV store killed")(_kill("kvstore"))
row("router-killed", "one router killed")(_kill("router"))
row("frontend-killed", "one frontend killed", frontend_dies=True)(_kill("frontend"))
row("prefills-killed", "all prefill workers killed", gap_seconds=15)(_kill_all("prefill"))
row("decodes-killed", "all decode workers killed", gap_seconds=15)(_kill_all("decode"))
row("stores-killed", "all KV stores killed")(_kill_all("kvstore"))
row("routers-killed", "all routers killed")(_kill_all("router"))


@row("two-killed", "two random processes killed", gap_seconds=15, frontend_dies=True)
async def _two_killed(scene: Scene) -> dict[str, Any]:
    first, second = scene.draw.sample(scene.fleet.of(), 2)
    return await _killed(scene, first, second, away_seconds=scene.draw.uniform(0.2, 2))


@row("decode-killed-again", "decode workers killed one after another, five times")
async def _again(scene: Scene) -> dict[str, Any]:
    proofs = []
    for _ in range(5):
        proofs.append(await _killed(scene, scene.pick("decode"), away_seconds=0.1))
        await asyncio.sleep(0.5)
    return {"killed": [proof["killed"] for proof in proofs]}


async def _frozen(scene: Scene, member: Member, seconds: float) -> dict[str, Any]:
    if member.service in ("prefill", "decode"):
        await scene.busy(member.id)
    scene.fleet.freeze(member.id)
    await asyncio.sleep(seconds)
    stopped = is_stopped(member.pid)
    scene.fleet.thaw(member.id)
    await scene.fleet.wait_ready(member.id)
    await asyncio.sleep(1)
    return {"frozen": {member.id: stopped}, "seconds": seconds}


def _freeze(service: str, seconds: float) -> Act:
    async def act(scene: Scene) -> dict[str, Any]:
        return await _frozen(scene, await _pick(scene, service), seconds)

    return act


@row("two-frozen", "two random processes frozen for 5 s", gap_seconds=8, frontend_dies=True)
async def _two_frozen(scene: Scene) -> dict[str, Any]:
    first, second = scene.draw.sample(scene.fleet.of(), 2)
    proofs = await asyncio.gather(_frozen(scene, first, 5), _frozen(scene, second, 5))
    return {"frozen": [proof["frozen"] for proof in proofs]}


row("prefill-frozen", "one prefill worker frozen for 6 s", gap_seconds=5)(_freeze("prefill", 6))
row("decode-frozen", "one decode worker frozen for 6 s", gap_seconds=5)(_freeze("decode", 6))
row("store-frozen", "one KV store frozen for 12 s", gap_seconds=5)(_freeze("kvstore", 12))
row("router-frozen", "one router frozen for 8 s")(_freeze("router", 8))
row("frontend-frozen", "one frontend frozen for 8 s", gap_seconds=5, frontend_dies=True)(
    _freeze("frontend", 8)
)


@row("clock", "decode worker clock one hour ahead, KV store clock one hour behind")
async def _clock(scene: Scene) -> dict[str, Any]:
    shifted = {"kvstore-1": -3600, "decode-1": 3600}  # a worker is ready once its store is
    library = scene.directory / "shift.so"
    compiled = await asyncio.create_subprocess_exec(
        "cc", "-shared", "-fPIC", "-o", str(library), str(CLOCK / "shift.c")
    )
    if await compiled.wait():
        return {"compiled": False}
    # Python imports sitecustomize from the first directory that has one.
    release = replace(CHECKOUT, paths=(CLOCK, *CHECKOUT.paths))
    told = {name: scene.directory / f"clock-of-{name}" for name in shifted}
    await _end_pair(scene)
    for name, seconds in shifted.items():
        clock = {
            "LD_PRELOAD": str(library),
            "CLOCK_SHIFT_SECONDS": str(seconds),
            "CLOCK_TOLD": str(told[name]),
        }
        await scene.start(name, settings=clock, release=release)
    await asyncio.sleep(5)
    off = {name: float(path.read_text()) - path.stat().st_mtime for name, path in told.items()}
    await _end_pair(scene)
    await scene.start(*shifted)
    return {
        "shifted": {name: abs(off[name] - by) < 1 for name, by in shifted.items()},
        "seconds": off,
    }


async def _end_pair(scene: Scene) -> None:
    """End a decode worker and the store next to it."""
    await scene.fleet.terminate("decode-1")
    # Other workers still use it: it would wait for them as long as allowed.
    scene.fleet.kill("kvstore-1")
    await scene.fleet.wait_ended("kvstore-1")
