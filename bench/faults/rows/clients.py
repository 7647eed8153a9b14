"""Faults of clients: requests that are too large, and disconnects."""

import asyncio
import time
from typing import Any

import httpx

from bench.faults.cancels import drop_streams
from bench.faults.rows.base import Rows
from bench.faults.scene import Scene
from bench.faults.slow_readers import stall

KILL_TOKEN = 4093
"""For Baton Tiny, the end of a document. The simulated engine never samples it, and dies when it
computes it."""

ROWS = Rows()
row = ROWS.add


@row("big-inputs", "4 MB request bodies of several shapes", gap_seconds=1)
async def _big_inputs(scene: Scene) -> dict[str, Any]:
    inputs = _big_bodies()
    statuses = []
    end = time.monotonic() + 6
    async with httpx.AsyncClient(timeout=30) as http:
        while time.monotonic() < end:
            path, data = scene.draw.choice(inputs)
            port = scene.pick("frontend").http_port
            answer = await http.post(f"http://127.0.0.1:{port}/v1/{path}", content=data)
            statuses.append(answer.status_code)
    return {"sent": len(statuses), "refused": all(400 <= one < 500 for one in statuses)}


def _big_bodies() -> list[tuple[str, bytes]]:
    # Concatenated: encoding would block this process, which measures gaps, for a second.
    words = b'"%b"' % (b"the quick brown fox " * 200_000)
    fields = [
        ("completions", b'"prompt": %b' % words),
        ("completions", b'"prompt": %b' % _list(b"[]", 1_300_000)),
        ("completions", b'"prompt": %b' % _list(b"1", 1_900_000)),
        ("chat/completions", b'"messages": [{"role": "user", "content": %b}]' % words),
        ("chat/completions", b'"messages": %b' % _list(b"{}", 900_000)),
    ]
    return [(path, b'{"model": "baton-tiny", %b}' % field) for path, field in fields]


def _list(item: bytes, count: int) -> bytes:
    return b"[" + (item + b",") * (count - 1) + item + b"]"


@row("clients-leave", "500 more streams dropped by their clients at random moments")
async def _clients_leave(scene: Scene) -> dict[str, Any]:
    return {"left": await drop_streams(scene, 500, at_once=12)}


@row(
    "slow-readers",
    "8 clients with 8 choices each that stop reading, next to 8 that read",
)
async def _slow_readers(scene: Scene) -> dict[str, Any]:
    return await stall(scene)


@row(
    "poison",
    "a request that kills its worker, retried on both frontends",
    gap_seconds=15,
    engines=("sim",),
)
async def _poison(scene: Scene) -> dict[str, Any]:
    starts = {member.id: member.pid for member in scene.fleet.of("prefill", "decode")}
    body = {"model": "baton-tiny", "prompt": [5, 6, 7, KILL_TOKEN, 8, 9], "max_tokens": 4}
    answers = []
    async with httpx.AsyncClient(timeout=60) as http:
        for frontend in (*scene.fleet.frontends, *scene.fleet.frontends):
            url = f"http://127.0.0.1:{frontend.http_port}/v1/completions"
            began = time.monotonic()
            answer = await http.post(url, json=body)
            code = answer.json()["error"]["code"]
            answers.append((answer.status_code, code, round(time.monotonic() - began, 2)))
            for name in [name for name, pid in starts.items() if pid and not scene.fleet[name].pid]:
                starts[name] = 0
                await scene.start(name)
    died = [name for name, pid in starts.items() if not pid]
    return {
        "died": died,
        "at_most_two": len(died) <= 2,
        "refused": all((status, code) == (400, "poison_request") for status, code, _ in answers),
        "answers": answers,
    }


@row("twins", "40 requests, each sent to both frontends at once with the same execution ID")
async def _twins(scene: Scene) -> dict[str, Any]:
    first, second = scene.fleet.frontends
    before = await scene.sum("baton_frontend_output_tokens_total", "frontend")

    async def send(http: httpx.AsyncClient, port: int, execution_id: str) -> int:
        body = {"model": "baton-tiny", "prompt": [5, 6, 7], "max_tokens": 40, "ignore_eos": True}
        url = f"http://127.0.0.1:{port}/v1/completions"
        answer = await http.post(url, json=body, headers={"x-baton-execution-id": execution_id})
        return answer.status_code

    async def send_twice(http: httpx.AsyncClient, execution_id: str) -> list[int]:
        ports = (first.http_port, second.http_port)
        return sorted(await asyncio.gather(*(send(http, port, execution_id) for port in ports)))

    pairs = []
    async with httpx.AsyncClient(timeout=60) as http:
        for begin in range(0, 40, 4):
            ids = [
                f"twin-{scene.draw.randrange(2**40)}-{number}" for number in range(begin, begin + 4)
            ]
            pairs += await asyncio.gather(*(send_twice(http, one) for one in ids))
    wrong = [pair for pair in pairs if pair != [200, 409]]
    tokens = await scene.sum("baton_frontend_output_tokens_total", "frontend") - before
    return {"pairs": len(pairs), "one_of_each": not wrong, "tokens_counted": tokens}
