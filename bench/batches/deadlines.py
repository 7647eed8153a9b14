"""Deadlines of batches beside interactive requests: `python -m bench.batches.deadlines`.

One worker of the sim engine with few places, nearly all of which interactive requests hold without
a pause. What a batch gets there in its class, and what lines get as interactive requests, is
measured first. Then come three batches at once, whose work takes 0.8 of the window at the second
rate, and longer than the window at the first; and one batch whose work takes three windows.

A day is `--window` seconds, so that an hour is a 24th of it: batches have this completion window
(`batches.completion_windows`), by the clock of Postgres, which alone decides when they expire.
Steps and looks are parts of the window. `batches.rate_seconds` is a 60th of it, as the rate has to
show what a step brought: that time alone is not in proportion, as in a day it would be 24 minutes.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from bench.batches.order import CHAT, words
from bench.harness import cli
from bench.harness.cluster import Cluster, cluster
from bench.harness.table import Table

PLACES, STREAMS, AT_ONCE = 8, 8, 16
"""Of the engine; interactive requests at once; lines at once."""
PROMPT, STREAM_OUTPUT, OUTPUT = 128, 48, 24
"""Tokens."""
LOAD, TOO_MUCH = 0.8, 3.0
"""Work in windows, at the rate of interactive requests."""
HOURS = 24
SECONDS = 600.0
ENDS = "completed", "failed", "expired", "cancelled"


class Requests:
    """Interactive requests, one after the other in each stream."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self._client = client
        self._draw = random.Random(7)
        self._model = model
        self.first_tokens: list[float] = []

    def body(self, output: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": words(PROMPT, self._draw)}]
        model = self._model
        return {"model": model, "messages": messages, "max_tokens": output, "ignore_eos": True}

    async def stream(self) -> None:
        """Send requests until cancelled."""
        while True:
            body, began = self.body(STREAM_OUTPUT) | {"stream": True}, time.monotonic()
            async with self._client.stream("POST", CHAT, json=body) as response:
                response.raise_for_status()
                lines = response.aiter_lines()
                async for line in lines:
                    if '"content":"' in line and '"content":""' not in line:
                        self.first_tokens.append(time.monotonic() - began)
                        break
                async for _ in lines:
                    pass

    async def lines_per_second(self, seconds: float) -> float:
        """Return how many lines end per second as interactive requests, `AT_ONCE` at once."""
        ended, warm = 0, seconds / 4

        async def some() -> None:
            nonlocal ended
            while True:
                response = await self._client.post(CHAT, json=self.body(OUTPUT))
                response.raise_for_status()
                ended += 1

        tasks = [asyncio.create_task(some()) for _ in range(AT_ONCE)]
        await asyncio.sleep(warm)
        before, began = ended, time.monotonic()
        await asyncio.sleep(seconds)
        rate = (ended - before) / (time.monotonic() - began)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return rate

    def told(self) -> tuple[int, int]:
        """Return p50 and p99 of times to the first token since the last call, in ms."""
        times, self.first_tokens = sorted(self.first_tokens), []
        return round(statistics.median(times) * 1e3), round(times[int(len(times) * 0.99)] * 1e3)


class Batches:
    """Creates batches and waits for them."""

    def __init__(self, client: httpx.AsyncClient, requests: Requests, up: Cluster) -> None:
        self._client = client
        self._requests = requests
        self._up = up

    async def create(self, lines: int, window: str) -> dict[str, Any]:
        """Create a batch, and return it once its lines run."""
        data = b"".join(
            json.dumps(
                {
                    "custom_id": str(at),
                    "method": "POST",
                    "url": CHAT,
                    "body": self._requests.body(OUTPUT),
                }
            ).encode()
            + b"\n"
            for at in range(lines)
        )
        form = {"purpose": "batch"}
        for _ in range(8):  # as clients do while the database is busy
            file = await self._client.post("/v1/files", data=form, files={"file": ("lines", data)})
            if file.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            await asyncio.sleep(1.0)
        file.raise_for_status()
        asked = {"input_file_id": file.json()["id"], "endpoint": CHAT, "completion_window": window}
        made = await self._client.post("/v1/batches", json=asked)
        made.raise_for_status()
        found: dict[str, Any] = made.json()
        while found["status"] == "validating":
            await asyncio.sleep(0.1)
            found = await self.get(found["id"])
        return found

    async def get(self, ident: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self._client.get(f"/v1/batches/{ident}")).json()
        return found

    async def lines_per_second(self, seconds: float) -> float:
        """Return how many lines of a batch end per second in their class."""
        batch = await self.create(5000, f"{HOURS}h")
        await asyncio.sleep(seconds / 4)
        before, began = await self.get(batch["id"]), time.monotonic()
        await asyncio.sleep(seconds)
        after, took = await self.get(batch["id"]), time.monotonic() - began
        await self._client.post(f"/v1/batches/{batch['id']}/cancel")
        await self.ended(batch["id"])
        counts = [one["request_counts"]["completed"] for one in (before, after)]
        return float((counts[1] - counts[0]) / took)

    async def ended(self, ident: str) -> tuple[dict[str, Any], list[tuple[float, int]]]:
        """Return a batch once it has ended, and how many lines had a result when."""
        seen: list[tuple[float, int]] = []
        while (batch := await self.get(ident))["status"] not in ENDS:
            seen.append((time.time(), batch["request_counts"]["completed"]))
            await asyncio.sleep(0.25)
        return batch, seen

    async def shown(self, ident: str) -> dict[str, Any]:
        """Return what `baton batches show` says."""
        baton = str(Path(sys.executable).with_name("baton"))
        command = (baton, "batches", "show", ident, "--json")
        run = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            env={"XDG_RUNTIME_DIR": self._up.runtime, "PATH": "/usr/bin:/bin"},
        )
        told, _ = await run.communicate()
        if run.returncode:
            raise SystemExit(f"baton batches show failed: {told.decode()}")
        found: dict[str, Any] = json.loads(told)
        return found

    async def error_codes(self, batch: dict[str, Any]) -> set[str]:
        content = await self._client.get(f"/v1/files/{batch['error_file_id']}/content")
        return {json.loads(line)["error"]["code"] for line in content.text.splitlines()}

    async def output_lines(self, batch: dict[str, Any]) -> int:
        content = await self._client.get(f"/v1/files/{batch['output_file_id']}/content")
        return len(content.text.splitlines())


async def in_time(
    batches: Batches, table: Table, window: int, own: float, most: float
) -> dict[str, Any]:
    """Run three batches that barely fit."""
    total = LOAD * window * most
    if total < 1.2 * own * window:
        raise SystemExit("the three batches would end in time anyway: the load is too small")
    sizes = [round(total / 3)] * 3
    made = await asyncio.gather(*(batches.create(size, f"{window}s") for size in sizes))
    found = await asyncio.gather(*(batches.ended(one["id"]) for one in made))
    left = []
    for at, (batch, _) in enumerate(found):
        if batch["status"] != "completed":
            raise SystemExit(f"a batch that fits did not complete in time: {batch}")
        left.append((batch["expires_at"] - batch["completed_at"]) / window * HOURS)
        share = (await batches.shown(batch["id"]))["urgent_share"]
        table.row(f"fits {at + 1}", sizes[at], "completed", left[-1], share, "", "", "")
    return {"hours left": left}


async def too_late(
    batches: Batches, table: Table, window: int, most: float, tolerance: float
) -> dict[str, Any]:
    """Run a batch that does not fit, and compare how late it is with what was said."""
    lines = round(TOO_MUCH * window * most)
    made = await batches.create(lines, f"{window}s")
    batch, seen = await batches.ended(made["id"])
    done = batch["request_counts"]["completed"]
    codes = await batches.error_codes(batch)
    if batch["status"] != "expired" or codes != {"batch_expired"}:
        raise SystemExit(f"a batch that does not fit is to expire: {batch['status']}, {codes}")
    if await batches.output_lines(batch) != done:
        raise SystemExit("the output does not have what is done")
    told = await batches.shown(batch["id"])
    if told["late_since"] is None:
        raise SystemExit("nothing said that the batch would be late")
    early = batch["expires_at"] - datetime.fromisoformat(told["late_since"]).timestamp()
    last = [one for one in seen if one[0] > seen[-1][0] - window / 2]
    rate = (last[-1][1] - last[0][1]) / (last[-1][0] - last[0][0])
    late, predicted = (lines - done) / rate, told["late_seconds"]
    scale = HOURS / window
    cells = predicted * scale, late * scale, early * scale
    table.row("does not fit", lines, "expired", 0.0, told["urgent_share"], *cells)
    if early * scale < 2:
        raise SystemExit(f"said {early * scale:.1f} h before, not 2")
    if abs(predicted / late - 1) > tolerance:
        raise SystemExit(f"predicted {predicted:.1f} s, was {late:.1f} s")
    return {"predicted": predicted, "late": late, "early": early, "done": done, "lines": lines}


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    window = options.window
    settings = {
        "BATON_ENGINE_MAX_RUNNING": str(PLACES),
        "BATON_ENGINE_SIM_TIME_SCALE": str(options.time_scale),
        "BATON_BATCHES_MAX_RUNNING": str(AT_ONCE),
        "BATON_BATCHES_COMPLETION_WINDOWS": f"{window}s,{HOURS}h",
        "BATON_BATCHES_RATE_SECONDS": str(window / 60),
    }
    pools = ("--prefill", "0", "--decode", "0", "--combined", "1")
    limits = httpx.Limits(max_connections=200)
    async with (
        cluster("--engine", "sim", "--batches", *pools, settings=settings) as up,
        httpx.AsyncClient(base_url=f"http://{up.http}", timeout=SECONDS, limits=limits) as client,
    ):
        requests = Requests(client, up.model)
        batches = Batches(client, requests, up)
        streams = [asyncio.create_task(requests.stream()) for _ in range(STREAMS)]
        try:
            return await _measure(options, requests, batches)
        finally:
            for task in streams:
                task.cancel()
            for task in streams:
                with suppress(asyncio.CancelledError):
                    await task


async def _measure(
    options: argparse.Namespace, requests: Requests, batches: Batches
) -> list[dict[str, Any]]:
    window = options.window
    beside = ("interactive requests next to", "<42"), ("p50 ms", "6d"), ("p99 ms", "6d")
    times = Table(*beside)
    await asyncio.sleep(options.calibrate / 2)
    times.row("nothing", *requests.told())
    own = await batches.lines_per_second(options.calibrate)
    times.row(f"lines in their class, {own:.1f}/s", *requests.told())
    most = await requests.lines_per_second(options.calibrate)
    times.row(f"lines as interactive requests, {most:.1f}/s", *requests.told())
    result: dict[str, Any] = {"own": own, "most": most}
    table = Table(
        ("batch", "<12"),
        ("lines", "6d"),
        ("status", "<9"),
        ("h left", "6.1f"),
        ("share", "5.3f"),
        ("late by h: predicted", "6.1f"),
        ("was", "6.1f"),
        ("said h before", "6.1f"),
    )
    if options.only != "late":
        result |= await in_time(batches, table, window, own, most)
        requests_told = requests.told()
    if options.only != "fits":
        result |= await too_late(batches, table, window, most, options.tolerance)
    if options.only != "late":
        Table(*beside).row("batches that fit", *requests_told)
    return [result]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", type=int, default=240, help="seconds of a day")
    parser.add_argument("--calibrate", type=float, default=20.0, help="seconds of a measured rate")
    parser.add_argument("--time-scale", type=float, default=2.0, help="of the sim engine")
    parser.add_argument("--only", choices=("fits", "late"), help="one of the two parts")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of the predicted lateness")


if __name__ == "__main__":
    smallest = "--window 30 --calibrate 5 --only late --tolerance 1"
    cli.main(measure, __doc__, arguments, 1, smallest=smallest)
