"""What the path of requests and tokens costs: `python -m bench.serving.token_path --json FILE`.

Starts a cluster whose engine is simulated and asks it for answers to prompts of 128 tokens: 8
tokens to 64 clients at once, 256 tokens to 64, and 16 tokens to one. Prints, for HTTP and for gRPC,
requests per second, the time to first token, and the CPU of frontend and router: per request, with
all its tokens, and per token, with everything that belongs to its request.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from baton.engine.testing.random_checkpoint import write_random_checkpoint
from bench.harness.processes import Member, Processes, cpu_seconds
from bench.serving.load_generator import Load, report, run
from services.frontend.text.chat_template import Message
from services.frontend.text.tokenizer import Tokenizer

MODEL = "bench"
PROMPT_TOKENS = 128
LOADS = (
    # name, output tokens, clients, requests
    ("8 to 64", 8, 64, 6000),
    ("256 to 64", 256, 64, 768),
    ("16 to 1", 16, 1, 400),
)
PEERS = {
    "NVIDIA Dynamo 1.6.1": {"req/s": 1229, "ms/request": 0.96, "us/token": 13.0},
    "smg 1.13.0 (proxies HTTP, no tokens)": {"req/s": 2875, "ms/request": 0.26, "us/token": 7.4},
    "LiteLLM 1.106": {"req/s": 46, "ms/request": 22.0, "us/token": 783.0},
}
PEERS_NOTE = "measured on the same kind of machine, in another run: 8 to 64, and 256 to 64 (token)"
SETTINGS = {
    "BATON_HTTP_PORT": "0",
    "BATON_ENGINE_KIND": "sim",
    "BATON_ENGINE_MODEL_NAME": MODEL,
    "BATON_ENGINE_MAX_RUNNING": "128",
    "BATON_ENGINE_KV_BYTES": "64MiB",
    "BATON_KV_ARENA_BYTES": "64MiB",
    "BATON_KV_STORE_ID": "kvstore-0",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
}
COLUMNS = (
    ("load", "{:18}"),
    ("req/s", "{:8.1f}"),
    ("tok/s", "{:8.0f}"),
    ("frontend ms/req", "{:15.3f}"),
    ("router ms/req", "{:13.3f}"),
    ("ms/req", "{:7.3f}"),
    ("us/token", "{:8.2f}"),
    ("ttft p50", "{:8.2f}"),
    ("ttft p99", "{:8.2f}"),
    ("events/req", "{:10.1f}"),
    ("errors", "{:6}"),
)


def prompts(directory: Path, count: int, seed: int = 1) -> list[str]:
    """Texts that are exactly 128 tokens in the model's chat template."""
    tokenizer = Tokenizer.load(directory)
    draw = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        text = ""
        while (length := len(tokenizer.encode_chat([Message("user", text)]))) < PROMPT_TOKENS:
            missing = PROMPT_TOKENS - length
            word = "".join(draw.choices("abdefgiklmnoprstu", k=draw.randint(1, 8)))
            text += f" {word}" if missing > 6 else draw.choice("abcdefghijklmnopqrstuvwxyz,.")
        if length == PROMPT_TOKENS:
            made.append(text)
    return made


def members(arguments: argparse.Namespace, model: Path) -> list[Member]:
    engine = {
        "BATON_ENGINE_MODEL": str(model),
        "BATON_ENGINE_SIM_TIME_SCALE": str(arguments.time_scale),
    }
    workers = [
        Member(f"{role}-{index}", "decode", {**engine, "BATON_ROLE": role})
        for role in ("prefill", "decode", "combined")
        for index in range(getattr(arguments, role))
    ]
    front = Member("frontend-0", "frontend", {"BATON_MODELS": f"{MODEL}={model}"})
    return [Member("kvstore-0", "kvstore"), Member("router-0", "router"), *workers, front]


async def measure(cluster: Processes, load: Load, name: str) -> dict[str, Any]:
    """Run a load and put what it cost beside what its clients saw."""
    watched = {member: cluster.running[member].pid for member in cluster.running}
    before = {member: cpu_seconds(pid) for member, pid in watched.items()}
    seen = await asyncio.to_thread(run, load)
    used = {member: cpu_seconds(pid) - before[member] for member, pid in watched.items()}
    done = max(1, len(seen.first))
    path = used["frontend-0"] + used["router-0"]
    return {
        "load": f"{'grpc' if load.grpc else 'http'} {name}",
        **report(load, seen),
        "frontend_ms_per_request": used["frontend-0"] / done * 1e3,
        "router_ms_per_request": used["router-0"] / done * 1e3,
        "path_ms_per_request": path / done * 1e3,
        "path_us_per_token": path / done / load.output_tokens * 1e6,
        "cpu_seconds": used,
    }


def row(result: dict[str, Any]) -> str:
    values = {
        "load": result["load"],
        "req/s": result["requests_per_second"],
        "tok/s": result["tokens_per_second"],
        "frontend ms/req": result["frontend_ms_per_request"],
        "router ms/req": result["router_ms_per_request"],
        "ms/req": result["path_ms_per_request"],
        "us/token": result["path_us_per_token"],
        "ttft p50": result["ttft_ms"]["p50"] or float("nan"),
        "ttft p99": result["ttft_ms"]["p99"] or float("nan"),
        "events/req": result["events_per_request"],
        "errors": sum(result["errors"].values()),
    }
    return "  ".join(form.format(values[name]) for name, form in COLUMNS)


def header() -> str:
    return "  ".join(
        f"{name:{'<' if at == 0 else '>'}{len(form.format(0 if at else ''))}}"
        for at, (name, form) in enumerate(COLUMNS)
    )


def slope(few: dict[str, Any], many: dict[str, Any]) -> float:
    """CPU of one more token, in microseconds: from two loads that differ in their tokens."""
    tokens = many["output_tokens"] - few["output_tokens"]
    return (many["path_ms_per_request"] - few["path_ms_per_request"]) / tokens * 1e3


async def compare(arguments: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    model = write_random_checkpoint(directory / MODEL, vocab=8192, layers=1)
    texts = prompts(model, 512)
    results = []
    async with Processes(directory, members(arguments, model), SETTINGS) as cluster:
        front = cluster.running["frontend-0"].instance
        surfaces = {
            "http": {"url": f"http://{front.http_address}"},
            "grpc": {"grpc": front.address},
        }
        for surface in arguments.surfaces:
            base = Load(model=MODEL, prompts=texts, **surfaces[surface])
            warm = replace(base, output_tokens=16, concurrency=64, requests=600)
            await asyncio.to_thread(run, warm)
            for name, tokens, clients, requests in LOADS:
                load = replace(
                    base,
                    output_tokens=tokens,
                    concurrency=clients,
                    requests=max(clients, int(requests * arguments.share)),
                )
                result = await measure(cluster, load, name)
                results.append(result)
                print(row(result), flush=True)
    return results


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--surfaces", nargs="+", choices=["http", "grpc"], default=["http", "grpc"])
    parser.add_argument("--prefill", type=int, default=0, help="prefill workers")
    parser.add_argument("--decode", type=int, default=0, help="decode workers")
    parser.add_argument("--combined", type=int, default=1, help="workers that do both")
    parser.add_argument("--time-scale", type=float, default=0.4, help="of the simulated engine")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests that are made")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse()
    print(f"{os.cpu_count()} cores, shared by clients, frontend, router, workers and store")
    print(header())
    with tempfile.TemporaryDirectory() as directory:
        results = asyncio.run(compare(arguments, Path(directory)))
    print()
    for few, many in zip(results[::3], results[1::3], strict=True):
        print(f"one more token ({few['surface']}): {slope(few, many):.2f} us")
    print(f"peers, {PEERS_NOTE}:")
    for name, peer in PEERS.items():
        print(f"  {name:38}" + "".join(f"{value:8g} {unit}" for unit, value in peer.items()))
    if arguments.json is not None:
        document = {"results": results, "peers": PEERS, "peers_note": PEERS_NOTE}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
