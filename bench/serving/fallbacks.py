"""All workers of a model are killed under load: `python -m bench.serving.fallbacks`.

Two random models with one combined worker each. The first one's policy falls back to the second.
Clients ask the first over HTTP and gRPC, half of them allowing fallbacks and half refusing; then
SIGKILL ends its worker. Prints how many requests failed, that answers, headers and usage records
name what answered, and that each record costs its tokens. How fast the others were told is measured
by a process of its own with bare sockets: clients that read streams meanwhile are late themselves.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, Literal

import httpx

from baton.client import AsyncClient, UnavailableError
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.request.prices import Price
from baton.usage.record import UsageRecord
from baton.usage.report.files import RecordFiles, files_of
from bench.harness import cli
from bench.harness.child import helper, process
from bench.harness.cluster import Cluster, cluster

FIRST, SECOND = "first", "second"
CUT = "cut"
"""An answer that ended after its first token: it never goes on at another model."""
TOLD = "told"
TELLING_CLIENTS = 4
PRICES = {FIRST: "1/0.5/2", SECOND: "0.01/0.005/0.02"}
WAIT_SECONDS = 2.0
SAID: tuple[Literal["allow", "never"], ...] = ("allow", "never")
OPTIONS = ("--prefill", "0", "--decode", "0", "--combined", "1", "--dtype", "float64")


class Load:
    """Clients that ask for the first model, and what they were told."""

    def __init__(self, one: Cluster) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://{one.http}", timeout=60)
        self._grpc = AsyncClient(one.grpc, timeout=60.0, retries=0)
        self.answers: Counter[tuple[str, str, str]] = Counter()
        """By what requests say of fallbacks, the API, and what answered; empty: it failed."""
        self.lies = 0
        self.on = True

    async def close(self) -> None:
        await self._http.aclose()
        await self._grpc.close()

    async def run(self, fallback: Literal["allow", "never"], api: str) -> None:
        """Ask until `on` is false."""
        while self.on:
            if api == "http":
                name = await self._over_http(fallback)
            else:
                name = await self._over_grpc(fallback)
            self.answers[fallback, api, name] += 1

    async def _over_http(self, fallback: str) -> str:
        body = {"model": FIRST, "prompt": "a b", "max_tokens": 4, "stream": True}
        body["baton"] = {"fallback": fallback}
        async with self._http.stream("POST", "/v1/completions", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line.startswith("data: {")]
            if answer.status_code != 200:
                self.lies += answer.status_code != 503 or "retry-after-ms" not in answer.headers
                return ""
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
        for chunk in chunks:
            if "error" in chunk:
                return CUT
            self._check(chunk["model"], chunk.get("baton", {}).get("requested_model", ""))
            self.lies += answer.headers["x-baton-model"] != chunk["model"]
        return str(chunks[0]["model"])

    async def _over_grpc(self, fallback: Literal["allow", "never"]) -> str:
        stream = self._grpc.generate("a b", model=FIRST, max_tokens=4, fallback=fallback)
        try:
            answer = await stream.answer()
        except UnavailableError as error:
            self.lies += error.retry_after is None
            return CUT if stream.token_ids else ""
        self._check(answer.model, answer.requested_model)
        return answer.model

    def _check(self, name: str, asked: str) -> None:
        self.lies += (asked == FIRST) != (name == SECOND)


async def ask_until_answered(port: int) -> dict[str, Any]:
    """Ask without fallbacks, from one line of the input until there is an answer or another line.

    Returns:
        Seconds from the end of the wait to each error, and the number of answers.
    """
    body = {"model": FIRST, "prompt": "a b", "max_tokens": 1, "baton": {"fallback": "never"}}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: baton\r\ncontent-length: {len(data)}\r\n\r\n"
    told: list[float] = []
    answered = 0
    print(flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))

    async def client() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while not line.done():
                began = time.monotonic()
                writer.write(head.encode() + data)
                answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                seconds = time.monotonic() - began
                length = int(answer.partition(b"content-length: ")[2].split()[0])
                await reader.readexactly(length)
                if b" 503 " not in answer.partition(b"\r\n")[0]:
                    answered += 1
                    return
                assert b"retry-after-ms: " in answer
                told.append(seconds - WAIT_SECONDS)
        finally:
            writer.close()

    await asyncio.gather(line, *(client() for _ in range(TELLING_CLIENTS)))
    return {"late": told, "answered": answered}


async def baton(one: Cluster, *words: str) -> None:
    command = (sys.executable, "-m", "baton", *words)
    async with process(command, {"XDG_RUNTIME_DIR": one.runtime}) as child:
        if code := await child.wait():
            raise SystemExit(f"baton {' '.join(words)} ended with exit code {code}")


def unpaid(records: list[UsageRecord]) -> int:
    """Return the records whose cost is not that of their tokens at the price of their model."""
    wrong = 0
    for one in records:
        cached, output = one.cached_tokens or 0, one.output_tokens or 0
        cost = Price.parse(PRICES[one.model]).cost(one.prompt_tokens, cached, output)
        wrong += one.cost_nanodollars != (cost if output else 0)
    return wrong


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all of it; exit with an error if a request that allows fallbacks failed."""
    with tempfile.TemporaryDirectory(prefix="baton-fallbacks-") as scratch:
        root = Path(scratch)
        paths = [write_random_checkpoint(root / name, seed=n) for n, name in enumerate(PRICES)]
        settings = {
            "BATON_ENGINE_KV_BYTES": "64MiB",
            "BATON_STORE_ARENA_BYTES": "64MiB",
            "BATON_LIMITS_WAIT_FOR_WORKER_SECONDS": str(WAIT_SECONDS),
            "BATON_USAGE_SPOOL_PATH": str(root / "spool"),
            "BATON_USAGE_JSONL_PATH": str(root / "files"),
            "BATON_USAGE_PRICES": ",".join(f"{name}={one}" for name, one in PRICES.items()),
        }
        given = [word for path in paths for word in ("--model", str(path))]
        async with cluster(*OPTIONS, *given, settings=settings) as one:
            await baton(one, "policies", "set", FIRST, "--fallback", SECOND)
            load = Load(one)
            tasks = [
                asyncio.create_task(load.run(fallback, api))
                for fallback in SAID
                for api in ("http", "grpc")
                for _ in range(options.clients)
            ]
            await asyncio.sleep(options.seconds)
            before = Counter(load.answers)
            pid = next(pid for name, pid in one.pids().items() if name.startswith("combined-0"))
            port = one.http.rpartition(":")[2]
            async with helper("bench.serving.fallbacks", TOLD, port) as clients:
                await clients.receive()
                os.kill(pid, signal.SIGKILL)
                await clients.send("go")
                await asyncio.sleep(options.seconds)
                told = await clients.ask("stop")
            late = told["late"] or [0.0]
            load.answers["never", "bare", FIRST] += told["answered"]
            load.on = False
            await asyncio.gather(*tasks)
            after = load.answers - before
            print(f"before the kill: {dict(before)}")
            print(f"after it:        {dict(after)}")
            failed = sum(load.answers["allow", api, ""] for api in ("http", "grpc"))
            print(f"{failed} of those that allow fallbacks failed before their first token")
            print(f"{load.lies} answers disagree with themselves")
            print(
                f"others were told {median(late) * 1e3:.0f} ms after {WAIT_SECONDS:g} s "
                f"(median of {len(late)}), at most {max(late) * 1e3:.0f} ms"
            )
            await load.close()
        found = list(RecordFiles(files_of(root / "files")))
        answered = [one for one in found if one.outcome == "ok"]
        names = Counter(one.model for one in answered)
        by_name = Counter[str]()
        for (_, _, name), count in load.answers.items():
            by_name[name] += count
        total = sum(one.cost_nanodollars or 0 for one in found)
        wrong = unpaid(found)
        print(f"answers {dict(by_name)}, usage records of answers {dict(names)}")
        print(f"{wrong} of {len(found)} records cost other than their tokens; sum {total} n$")
        if failed or load.lies or wrong or any(by_name[name] != names[name] for name in PRICES):
            raise SystemExit("fallbacks are not as promised")
        return {"failed": failed, "late_seconds": late, "answers": dict(by_name)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=2, help="of each of four kinds; default: 2")
    parser.add_argument("--seconds", type=float, default=10.0, help="before and after; default: 10")


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if sys.argv[1:2] == [TOLD]:
        print(json.dumps(asyncio.run(ask_until_answered(int(sys.argv[2])))), flush=True)
    else:
        cli.main(measure, __doc__, arguments, smallest="--clients 1 --seconds 2")
