"""A batch from its upload to the last byte of its output: `python -m bench.batches.whole`.

openai-python uploads the lines, creates the batch, waits, and reads the output, on a cluster of the
sim engine that takes no time to compute. Each line of the output is compared with the one of the
input: its place, its id, its status, and its tokens. CPU seconds are those of each process while
lines run: the one whose CPU takes all of the time is what limits.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.batches.uploads import CHAT, SECONDS
from bench.harness import cli
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import cpu_seconds
from bench.harness.signals import family
from bench.harness.table import Table

OUTPUT_TOKENS = 2
LOOK_SECONDS = 0.2


def input_of(lines: int, model: str) -> bytes:
    """Return the input: lines that differ."""
    found = []
    for number in range(lines):
        messages = [{"role": "user", "content": f"What is the square of {number}?"}]
        body = {"model": model, "messages": messages, "max_tokens": OUTPUT_TOKENS}
        line = {"custom_id": f"c{number}", "method": "POST", "url": CHAT, "body": body}
        found.append(json.dumps(line).encode() + b"\n")
    return b"".join(found)


async def verified(pieces: AsyncIterator[bytes], lines: int) -> int:
    """Return the bytes of an output that has all lines in the order of the input.

    Raises:
        SystemExit: it has not.
    """
    held, number, size = b"", 0, 0
    async for piece in pieces:
        size += len(piece)
        *whole, held = (held + piece).split(b"\n")
        for text in whole:
            line = json.loads(text)
            response = line["response"]
            right = line["custom_id"] == f"c{number}" and line["error"] is None
            if not (right and response["status_code"] == 200):
                raise SystemExit(f"line {number} of the output is {text[:500]!r}")
            if response["body"]["usage"]["completion_tokens"] != OUTPUT_TOKENS:
                raise SystemExit(f"line {number} has another number of tokens: {text[:500]!r}")
            number += 1
    if held or number != lines:
        raise SystemExit(f"the output has {number} lines of {lines}, and then {held[:99]!r}")
    return size


def spent(up: Cluster) -> dict[str, float]:
    """Return the CPU seconds of each process, and those of Postgres."""
    found = {name: cpu_seconds(pid) for name, pid in up.pids().items()}
    found["postgres"] = 0.0
    for server in family(up.supervisor):
        if Path(f"/proc/{server}/comm").read_text().strip() == "postgres":
            for pid in family(server):
                with suppress(OSError):  # it has ended
                    found["postgres"] += cpu_seconds(pid)
    return found


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the seconds of each part, and the CPU of each process."""
    import openai  # takes a second

    settings = {
        "BATON_ENGINE_SIM_TIME_SCALE": "0",
        "BATON_BATCHES_MAX_RUNNING": str(options.running),
        "BATON_ENGINE_MAX_RUNNING": str(options.running),
    }
    pools = ("--prefill", "0", "--decode", "0", "--combined", "1")
    async with (
        cluster("--batches", "--engine", "sim", *pools, settings=settings) as up,
        openai.AsyncOpenAI(
            base_url=f"http://{up.http}/v1", api_key="none", timeout=SECONDS, max_retries=8
        ) as client,
    ):
        data = input_of(options.lines, up.model)
        began = time.perf_counter()
        file = await client.files.create(file=("in.jsonl", data), purpose="batch")
        uploaded = time.perf_counter()
        batch = await client.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h"
        )
        moments: dict[str, float] = {}
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        while batch.status not in ("completed", "failed", "expired", "cancelled"):
            await asyncio.sleep(LOOK_SECONDS)
            batch = await client.batches.retrieve(batch.id)
            if batch.status not in moments:
                moments[batch.status] = time.perf_counter()
                if batch.status == "in_progress":
                    before = spent(up)
                elif batch.status == "finalizing":
                    after = spent(up)
        after = after or spent(up)
        if batch.status != "completed" or batch.error_file_id or not batch.output_file_id:
            raise SystemExit(f"the batch did not complete: {batch}")
        ended = time.perf_counter()
        content = await client.files.content(batch.output_file_id)
        size = await verified(content.response.aiter_bytes(), options.lines)
        read = time.perf_counter()
    started = moments.get("in_progress", ended)
    ran = moments.get("finalizing", ended)
    parts = {
        "upload": uploaded - began,
        "check": started - uploaded,
        "lines": ran - started,
        "output": ended - ran,
        "download": read - ended,
        "all": read - began,
    }
    table = Table(("part", "<10"), ("seconds", "8.1f"), ("lines/s", "8.0f"))
    for name, seconds in parts.items():
        table.row(name, seconds, options.lines / max(seconds, 1e-3))
    print(f"output: {size / 1e6:.1f} MB, {options.lines} lines in the order of the input")
    seconds = ran - started
    used = {name: cpu - before.get(name, 0.0) for name, cpu in after.items()} if before else {}
    for name, cpu in sorted(used.items(), key=lambda one: -one[1]):
        print(f"{name:<12} {cpu:6.1f} s of CPU, {cpu / seconds:4.0%} of a core")
    return [{"part": name, "seconds": seconds} for name, seconds in parts.items()]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--lines", type=int, default=50_000, help="default: 50,000")
    parser.add_argument("--running", type=int, default=128, help="lines at once; default: 128")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--lines 200")
