"""An upload and the check of a batch's input, beside other requests of the same frontend.

    python -m bench.batches.uploads [--megabytes 200] [--lines 50000] [--json FILE]

A client asks for `/health/live` without pause: its times show how long the event loop was
blocked, and what others on this machine took. CPU and memory, the resident set every 10 ms, are the
frontend's. The check lasts from the batch's creation until its lines run.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any

import httpx

from bench.harness import cli
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import cpu_seconds, rss_bytes
from bench.harness.stats import percentile
from bench.harness.table import Table

MIB = 1024 * 1024
SECONDS = 600.0
QUIET_SECONDS = 3.0
CHAT = "/v1/chat/completions"


class Watch:
    """What a frontend's other clients, and its memory, notice of some work."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._pid = pid
        self.times: list[float] = []
        self.grown = 0.0

    async def during(self, work: Awaitable[Any]) -> Any:
        """Return the result of some work."""
        before = rss_bytes(self._pid)
        tasks = [asyncio.create_task(self._ask()), asyncio.create_task(self._look(before))]
        try:
            return await work
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _ask(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=SECONDS) as http:
            while True:
                began = time.perf_counter()
                await http.get("/health/live")
                self.times.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(0.002)

    async def _look(self, before: int) -> None:
        while True:
            self.grown = max(self.grown, (rss_bytes(self._pid) - before) / MIB)
            await asyncio.sleep(0.01)


async def _form(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a form with a file."""
    part = b"--X\r\ncontent-disposition: form-data; name="
    yield part + b'"purpose"\r\n\r\nbatch\r\n' + part + b'"file"; filename="in.jsonl"\r\n\r\n'
    async for piece in pieces:
        yield piece
    yield b"\r\n--X--\r\n"


async def upload(url: str, pieces: AsyncIterator[bytes]) -> str:
    """Return the id of an uploaded file."""
    headers = {"content-type": "multipart/form-data; boundary=X"}
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
        answer = await http.post("/v1/files", content=_form(pieces), headers=headers)
        return str(answer.raise_for_status().json()["id"])


async def _bytes(megabytes: int) -> AsyncIterator[bytes]:
    line = b"x" * 1023 + b"\n"
    for _ in range(megabytes):
        yield line * 1024


async def generated_lines(count: int, model: str) -> AsyncIterator[bytes]:
    """Yield the lines of a batch's input, of 1 KB each."""
    messages = [{"role": "user", "content": "x" * 900}]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    for first in range(0, count, 100):
        lines = [
            {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}
            for number in range(first, min(first + 100, count))
        ]
        yield b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def _check(url: str, file: str) -> str:
    """Return once the input of a new batch is checked; cancel it then."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
        body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        batch = (await http.post("/v1/batches", json=body)).raise_for_status().json()
        while batch["status"] == "validating":
            await asyncio.sleep(0.01)
            batch = (await http.get(f"/v1/batches/{batch['id']}")).json()
        if batch["status"] == "failed":
            raise SystemExit(f"the input has errors: {batch['errors']}")
        with suppress(httpx.HTTPError):
            await http.post(f"/v1/batches/{batch['id']}/cancel")
        return str(batch["id"])


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per kind of work."""
    results: list[dict[str, Any]] = []
    settings = {"BATON_FILES_MAX_FILE_BYTES": "1GiB"}
    async with cluster("--batches", "--engine", "sim", settings=settings) as up:
        url = f"http://{up.http}"
        await _connected(url)
        table = Table(
            ("work", "<12"),
            *(("seconds", "8.2f"), ("CPU s", "6.2f"), ("grown MiB", "9.1f"), ("p50 ms", "7.1f")),
            *(("p99 ms", "7.1f"), ("longest ms", "10.1f")),
        )

        async def row(name: str, work: Awaitable[Any]) -> Any:
            pid = _frontend(up)
            watch, began, spent = Watch(url, pid), time.perf_counter(), cpu_seconds(pid)
            found = await watch.during(work)
            seconds, spent = time.perf_counter() - began, cpu_seconds(pid) - spent
            times = watch.times
            slow = percentile(times, 50), percentile(times, 99), max(times)
            values = seconds, spent, watch.grown, *slow
            table.row(name, *values)
            results.append({"work": name, "values": values})
            return found

        await row("none", asyncio.sleep(QUIET_SECONDS))
        await row("upload", upload(url, _bytes(options.megabytes)))
        file = await upload(url, generated_lines(options.lines, up.model))
        await row("check", _check(url, file))
    return results


def _frontend(up: Cluster) -> int:
    return next(pid for name, pid in up.pids().items() if name.startswith("frontend"))


async def _connected(url: str) -> None:
    """Return once the frontend has its database."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
        while (await http.get("/v1/files")).status_code != 200:
            await asyncio.sleep(0.1)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--megabytes", type=int, default=200, help="MiB of the upload")
    parser.add_argument("--lines", type=int, default=50_000, help="default: 50,000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--megabytes 4 --lines 200")
