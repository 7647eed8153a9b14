"""Cost of the path of requests and tokens: `python -m bench.serving.token_path --json FILE`.

Starts a cluster with the simulated engine and sends it prompts of 128 tokens: 8 output tokens for
64 concurrent clients, 256 tokens for 64, and 16 tokens for one. Prints, for chat completions and
responses over HTTP and for gRPC, in turns, requests per second, the time to first token, and the
CPU of frontend and router: per request with all its tokens, and per token with its share of the
request; then the CPU of one more token. Clients, frontend, router, workers and store share the
machine's cores.
"""

import argparse
import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from baton.worker.wire.tokenizer_files import TokenizerFiles
from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import cpu_seconds
from bench.harness.table import Table
from bench.serving.load.generator import run
from bench.serving.load.streams import Load, report
from services.frontend.text.chat_template import ChatMessage
from services.frontend.text.tokenizer import Tokenizer

PROMPT_TOKENS = 128
LOADS = (
    # name, output tokens, clients, requests
    ("8 to 64", 8, 64, 6000),
    ("256 to 64", 256, 64, 768),
    ("16 to 1", 16, 1, 400),
)
SURFACES = ("http", "responses", "grpc")
SETTINGS = {
    "BATON_ENGINE_MAX_RUNNING": "128",
    "BATON_ENGINE_KV_BYTES": "64MiB",
    "BATON_STORE_ARENA_BYTES": "64MiB",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
}


def prompts(model: Path, count: int, seed: int = 1, tokens: int = PROMPT_TOKENS) -> list[str]:
    """Return texts with an exact number of tokens in the model's chat template."""
    tokenizer = Tokenizer.load(TokenizerFiles.read(model))
    draw = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        text = ""
        while (length := len(tokenizer.encode_chat([ChatMessage("user", text)]))) < tokens:
            missing = tokens - length
            word = "".join(draw.choices("abdefgiklmnoprstu", k=draw.randint(1, 8)))
            text += f" {word}" if missing > 6 else draw.choice("abcdefghijklmnopqrstuvwxyz,.")
        if length == tokens:
            made.append(text)
    return made


async def under(up: Cluster, load: Load, name: str) -> dict[str, Any]:
    """Run a load and combine its cost with the clients' results."""
    pids = up.pids()
    before = {member: cpu_seconds(pid) for member, pid in pids.items()}
    seen = await asyncio.to_thread(run, load)
    used = {member: cpu_seconds(pid) - before[member] for member, pid in pids.items()}
    done = max(1, len(seen.first))
    path = used["frontend-0"] + used["router-0"]
    return {
        "load": f"{load.surface} {name}",
        **report(load, seen),
        "frontend_ms_per_request": used["frontend-0"] / done * 1e3,
        "router_ms_per_request": used["router-0"] / done * 1e3,
        "path_ms_per_request": path / done * 1e3,
        "path_us_per_token": path / done / load.output_tokens * 1e6,
        "cpu_seconds": used,
    }


def show(table: Table, result: dict[str, Any]) -> None:
    """Print the line of a load."""
    table.row(
        result["load"],
        result["requests_per_second"],
        result["tokens_per_second"],
        result["frontend_ms_per_request"],
        result["router_ms_per_request"],
        result["path_ms_per_request"],
        result["path_us_per_token"],
        result["ttft_ms"]["p50"],
        result["ttft_ms"]["p99"],
        result["events_per_request"],
        sum(result["errors"].values()),
    )


def slope(few: dict[str, Any], many: dict[str, Any]) -> float:
    """Return the CPU of one more token in µs, from two loads with different numbers of tokens."""
    tokens: int = many["output_tokens"] - few["output_tokens"]
    more: float = many["path_ms_per_request"] - few["path_ms_per_request"]
    return 1e3 * more / tokens


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    model = tokenizer_only("token-path")
    texts = prompts(model, max(8, int(512 * options.share)))
    table = Table(
        ("load", "<15"),
        ("req/s", "8.1f"),
        ("tok/s", "8.0f"),
        ("frontend ms/req", "15.3f"),
        ("router ms/req", "13.3f"),
        ("ms/req", "7.3f"),
        ("us/token", "8.2f"),
        ("ttft p50", "8.2f"),
        ("ttft p99", "8.2f"),
        ("events/req", "10.1f"),
        ("errors", "6"),
    )
    workers = [f"--{role}={getattr(options, role)}" for role in ("prefill", "decode", "combined")]
    settings = {**SETTINGS, "BATON_ENGINE_SIM_TIME_SCALE": str(options.time_scale)}
    results = []
    async with cluster("--engine=sim", f"--model={model}", *workers, settings=settings) as up:
        loads = [
            Load(
                model=up.model,
                prompts=texts,
                http=up.http,
                grpc=up.grpc if surface == "grpc" else "",
                responses=surface == "responses",
            )
            for surface in options.surfaces
        ]
        for base in loads:
            requests = max(64, int(600 * options.share))
            warm = replace(base, output_tokens=16, concurrency=64, requests=requests)
            await asyncio.to_thread(run, warm)
        for name, tokens, clients, requests in LOADS:
            for base in loads if name in options.loads else ():
                load = replace(
                    base,
                    output_tokens=tokens,
                    concurrency=clients,
                    requests=max(clients, int(requests * options.share)),
                )
                results.append(await under(up, load, name))
                show(table, results[-1])
    if set(options.loads) == {name for name, *_ in LOADS}:
        count = len(options.surfaces)
        slopes = {
            few["surface"]: slope(few, many)
            for few, many in zip(results[:count], results[count : 2 * count], strict=True)
        }
        for surface, more in slopes.items():
            beside = f", {more / slopes['http']:.2f} x http" if "http" in slopes else ""
            print(f"one more token ({surface}): {more:.2f} us{beside}")
    return {"loads": results}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--surfaces", nargs="+", choices=SURFACES, default=SURFACES)
    names = [name for name, *_ in LOADS]
    parser.add_argument("--loads", nargs="+", choices=names, default=names)
    parser.add_argument("--prefill", type=int, default=0, help="prefill workers")
    parser.add_argument("--decode", type=int, default=0, help="decode workers")
    parser.add_argument("--combined", type=int, default=1, help="workers that do both")
    parser.add_argument(
        "--time-scale", type=float, default=0.4, help="time scale of the simulated engine"
    )
    parser.add_argument("--share", type=float, default=1.0, help="share of the requests to send")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest='--share 0.02 --loads "8 to 64"')
