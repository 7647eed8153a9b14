"""Cost of a turn by `previous_response_id`, and of one with all of its history.

    python -m bench.conversations.stored_turns [--rounds 50] [--json FILE]

Starts a cluster with the simulated engine, whose steps take no time, and a Postgres of its own. One
client holds conversations, one request at a time, each turn stored. Turns 2 and 30 are sent twice:
by `previous_response_id`, stored, and with all items, `store: false`; which one comes first
alternates. Prints the bytes of the request and of the response, the time to the first token, and
the CPU of the frontend, which has 20 ms after each request to end its work; medians, and those of
the differences between the two. A stored turn is one read by key and one write:
`tests/integration/frontend/stored/test_responses.py` counts.
"""

import argparse
import asyncio
import json
import random
import time
from typing import Any

import httpx

from bench.harness import cli
from bench.harness.cluster import cluster
from bench.harness.machine import exact_cpu_seconds
from bench.harness.stats import percentile
from bench.harness.table import Table

MEASURED_TURNS = 2, 30
OUTPUT_TOKENS = 8
TEXT_WORDS = 60
SETTLE_SECONDS = 0.02
STORED_SECONDS = 60.0
OPTIONS = ("--engine=sim", "--prefill=0", "--decode=0", "--combined=1", "--conversations")
SETTINGS = {
    "BATON_ENGINE_SIM_TIME_SCALE": "0",
    "BATON_TELEMETRY_LOG_LEVEL": "warning",
    "BATON_CONVERSATIONS_STATEMENT_SECONDS": "60",
}
BY_ID, WHOLE = "by id, stored", "all items"
TEXT = "the fox and a bear went home to see if it rains in a small town by the sea"


class Exchange:
    """A request and its streamed response, as a client sees them."""

    def __init__(self, http: httpx.AsyncClient, pid: int) -> None:
        self._http = http
        self._pid = pid

    async def send(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request; return what it cost, and the response."""
        data = json.dumps(body).encode()
        cpu, began = exact_cpu_seconds(self._pid), time.perf_counter()
        first, received, last = 0.0, 0, ""
        async with self._http.stream("POST", "/v1/responses", content=data) as response:
            if response.status_code != 200:
                raise SystemExit(f"{response.status_code}: {(await response.aread()).decode()}")
            async for line in response.aiter_lines():
                received += len(line) + 1
                if not first and line.startswith("event: response.output_text.delta"):
                    first = time.perf_counter() - began
                last = line if line.startswith("data: ") else last
        await asyncio.sleep(SETTLE_SECONDS)
        ended = json.loads(last.removeprefix("data: "))
        if ended.get("type") not in ("response.completed", "response.incomplete"):
            raise SystemExit(last)
        return {
            "sent": len(data),
            "received": received,
            "ttft_ms": first * 1000,
            "cpu_ms": (exact_cpu_seconds(self._pid) - cpu) * 1000,
            "response": ended["response"],
        }


async def wait_stored(http: httpx.AsyncClient) -> None:
    """Wait until the frontend reads what is stored: it serves before it is connected."""
    async with asyncio.timeout(STORED_SECONDS):
        while (await http.get(f"/v1/responses/resp_{'0' * 32}")).status_code == 503:
            await asyncio.sleep(SETTLE_SECONDS)


async def hold(exchange: Exchange, model: str, draw: random.Random) -> list[dict[str, Any]]:
    """Hold a conversation; return what its measured turns cost."""
    shared = {
        "model": model,
        "stream": True,
        "max_output_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
    }
    words, history = TEXT.split(), list[dict[str, Any]]()
    previous: dict[str, str] = {}
    found = []
    for turn in range(1, max(MEASURED_TURNS) + 1):
        item = {"role": "user", "content": " ".join(draw.choices(words, k=TEXT_WORDS))}
        by_id = {**shared, **previous, "input": [item], "store": True}
        history.append(item)
        bodies = {BY_ID: by_id}
        if turn in MEASURED_TURNS:
            bodies[WHOLE] = {**shared, "input": history, "store": False}
        names = list(bodies)
        draw.shuffle(names)
        costs = {name: await exchange.send(bodies[name]) for name in names}
        stored = costs[BY_ID]["response"]
        previous = {"previous_response_id": stored["id"]}
        for name, cost in costs.items():
            ended = cost.pop("response")
            if ended["usage"]["input_tokens"] != stored["usage"]["input_tokens"]:
                raise SystemExit(f"turn {turn}: {name} had another prompt")
            if turn in MEASURED_TURNS:
                found.append({"turn": turn, "name": name, **cost})
        history += [
            {"type": "message", "role": "assistant", "content": part["content"]}
            for part in stored["output"]
        ]
    return found


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per turn and way."""
    found: list[dict[str, Any]] = []
    draw = random.Random(7)
    async with (
        cluster(*OPTIONS, settings=SETTINGS) as up,
        httpx.AsyncClient(base_url=f"http://{up.http}", timeout=60) as http,
    ):
        await wait_stored(http)
        exchange = Exchange(http, up.pids()["frontend-0"])
        await hold(exchange, up.model, draw)  # warms caches
        for _ in range(options.rounds):
            found += await hold(exchange, up.model, draw)
    table = Table(
        ("turn", "5d"),
        ("", "<14"),
        ("bytes sent", "10.0f"),
        ("received", "8.0f"),
        ("ttft p50 ms", "11.2f"),
        ("p99", "7.2f"),
        ("frontend CPU ms", "15.2f"),
    )
    for turn in MEASURED_TURNS:
        for name in (BY_ID, WHOLE):
            costs = [cost for cost in found if (cost["turn"], cost["name"]) == (turn, name)]
            ttft = [cost["ttft_ms"] for cost in costs]
            table.row(
                turn,
                name,
                percentile([cost["sent"] for cost in costs], 50),
                percentile([cost["received"] for cost in costs], 50),
                percentile(ttft, 50),
                percentile(ttft, 99),
                percentile([cost["cpu_ms"] for cost in costs], 50),
            )
        first, spent = (beyond(found, turn, key) for key in ("ttft_ms", "cpu_ms"))
        print(f"turn {turn}: stored, beyond all items: {first:+.2f} ms to a first token, ", end="")
        print(f"{spent:+.2f} ms of the frontend's CPU", flush=True)
    return found


def beyond(found: list[dict[str, Any]], turn: int, key: str) -> float:
    """Return the median of what the stored one of each pair took beyond the other one."""
    of_turn = [cost for cost in found if cost["turn"] == turn]
    by_id, whole = ([cost[key] for cost in of_turn if cost["name"] == n] for n in (BY_ID, WHOLE))
    return percentile([a - b for a, b in zip(by_id, whole, strict=True)], 50)


if __name__ == "__main__":
    cli.main(measure, __doc__, rounds=50, smallest="--rounds 1")
