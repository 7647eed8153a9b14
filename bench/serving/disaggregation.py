"""Running streams while others send long prompts: separate and combined workers, and vLLM.

8 clients stream, while others send 3,000-token prompts at several rates. Systems, each on all cores
of the machine:

    split       1 prefill + 1 decode worker, a core (or half of them) each
    shared      the same two on all cores, decode's threads with a lower priority than prefill's
    combined    1 worker that does both on all cores
    vllm        vLLM with chunked prefill on all cores (`make vllm` installs it)

A chunk size after a slash replaces the default: `combined/128`.

    python -m bench.serving.disaggregation [--system split …] [--rate 0.1 …] [--json FILE]
    python -m bench.serving.disaggregation --from FILE [--svg FILE]     measures nothing

`--json` is written after every point; `--from` reads it, so that several runs form one picture.
Below the table, each pair of workers is compared with vLLM and the combined worker.
"""

import argparse
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from baton.client import AsyncClient
from bench.harness import ROOT, cli
from bench.harness.checkpoints import SIZES, VOCAB, random_llama
from bench.harness.cluster import cluster
from bench.harness.table import Table
from bench.serving.generate import greedy
from bench.serving.load.mixed import MixedLoad, Request, Targets, figures, from_json, run, to_json
from bench.vllm.peers import async_llm
from simulator.report.plot import Panel, draw

SYSTEMS = ("split", "shared", "combined", "vllm")
PAIRS = ("split", "shared")
RATES = (0.1, 0.15, 0.2)
CHUNK_TOKENS = 512
SHARED = "[decode.engine]\nnice = {nice}\n"
"""Settings of a pair that shares its cores, in the format of `baton up --config`."""
Row = dict[str, Any]
Done = Callable[[MixedLoad, list[Request]], None]


async def on_baton(
    system: str,
    chunk: int,
    options: argparse.Namespace,
    model: Path,
    loads: list[MixedLoad],
    done: Done,
) -> None:
    """Run every load on one cluster with the workers of one system."""
    config = ROOT / "build" / "bench" / "shared.toml"
    config.write_text(SHARED.format(nice=options.nice))
    workers = {
        "split": ("--prefill", "1", "--decode", "1", "--pin"),
        "shared": ("--prefill", "1", "--decode", "1", f"--config={config}"),
        "combined": ("--prefill", "0", "--decode", "0", "--combined", "1"),
    }[system]
    settings = {
        "BATON_ENGINE_CHUNK_TOKENS": str(chunk),
        "BATON_ENGINE_KV_BYTES": options.kv,
        "BATON_STORE_ARENA_BYTES": options.kv,
    }
    async with (
        cluster(
            *workers, f"--engine={options.engine}", f"--model={model}", settings=settings
        ) as up,
        AsyncClient(up.grpc, retries=0) as client,
    ):
        generate = greedy(client, up.model)
        # Once through every worker and size, so that no measurement is a first run.
        warm = loads[0].warm_seconds
        first = replace(
            loads[0], prompts_per_second=2 / warm, seconds=warm, streams=2, warm_seconds=0
        )
        await run(generate, first)
        for load in loads:
            done(load, await run(generate, load))


async def on_vllm(chunk: int, model: Path, loads: list[MixedLoad], done: Done) -> None:
    """Run every load on one vLLM engine."""
    cores = sorted(os.sched_getaffinity(0))
    settings = {"VLLM_CPU_KVCACHE_SPACE": "3"}
    async with async_llm(model, cores, cores, chunk_tokens=chunk, settings=settings) as peer:
        for load in loads:
            done(load, from_json(await peer.ask({"ask": "mixed", **asdict(load)})))


def show(table: Table, row: Row) -> None:
    """Print the line of a point."""
    table.row(
        row["system"],
        row["prompts_per_second"],
        row["stream_tokens_per_second"],
        row["inter_token_p50"] * 1e3,
        row["inter_token_p99"] * 1e3,
        row["inter_token_max"] * 1e3,
        row["first_token_p50"],
        row["first_token_p99"],
        f"{row['prompts_good']}/{row['prompts']}",
        f"{row['streams_good']}/{row['streams_done']}",
        row["goodput"],
    )
    if row["errors"]:
        print(row["errors"])


def compare(rows: list[Row]) -> None:
    """Print how each pair of workers compares with the other systems at the same rate."""
    by_point = {(row["system"], row["prompts_per_second"]): row for row in rows}
    for (system, rate), pair in by_point.items():
        if system not in PAIRS:
            continue
        for other in ("combined", "vllm"):
            if (beside := by_point.get((other, rate))) is None:
                continue
            compared = (
                ("p99 interval, ms", "inter_token_p99", 1e3),
                ("good requests/s", "goodput", 1.0),
                ("prompts' TTFT p50, s", "first_token_p50", 1.0),
            )
            said = [
                f"{name} {pair[key] * scale:.2f} beside {beside[key] * scale:.2f}"
                f" ({_ratio(pair[key], beside[key])})"
                for name, key, scale in compared
            ]
            print(f"{system} beside {other} at {rate}/s: {'; '.join(said)}")


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.3g} times" if other and one + other < math.inf else "no ratio"


def plot(rows: list[Row], targets: Targets) -> str:
    """Return the results as SVG."""
    x = "3,000-token prompts per second"

    def curves(name: str, scale: float) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            value = row[name] * scale
            if math.isfinite(value):
                found.setdefault(row["system"], []).append((row["prompts_per_second"], value))
        return found

    return draw(
        [
            Panel(
                "Streams: interval between tokens, p99, ms",
                x,
                curves("inter_token_p99", 1e3),
                targets.inter_token * 1e3,
            ),
            Panel(
                "Prompts: time to first token, p50, s",
                x,
                curves("first_token_p50", 1),
                targets.first_token,
            ),
            Panel("Requests/s that met both targets", x, curves("goodput", 1), None),
        ]
    )


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    targets = Targets(options.first_token, options.inter_token)
    runs: list[dict[str, Any]] = []
    rows: list[Row] = []
    print(f"good: TTFT ≤ {targets.first_token} s, 99 % of intervals ≤ {targets.inter_token} s")
    table = Table(
        ("system", "<13"),
        ("prompts/s", "9.2f"),
        ("tok/s", "6.0f"),
        ("interval p50 ms", "8.0f"),
        ("p99", "6.0f"),
        ("max", "6.0f"),
        ("TTFT p50 s", "8.2f"),
        ("p99", "6.2f"),
        ("good prompts", "8"),
        ("streams", "8"),
        ("good/s", "6.2f"),
    )

    def note(system: str, load: MixedLoad, requests: list[Request]) -> None:
        runs.append({"system": system, "load": asdict(load), "requests": to_json(requests)})
        rows.append({"system": system, **figures(requests, load, targets)})
        show(table, rows[-1])
        cli.write(options, runs)

    if options.sources:
        for source in options.sources:
            for each in json.loads(source.read_text())["results"]:
                note(each["system"], MixedLoad(**each["load"]), from_json(each["requests"]))
    else:
        model = random_llama(options.size)
        base = MixedLoad(
            0.0,
            seconds=options.seconds,
            prompt_tokens=options.prompt_tokens,
            vocab_tokens=VOCAB,
            warm_seconds=options.warm_seconds,
        )
        loads = [replace(base, prompts_per_second=rate) for rate in options.rate or RATES]
        for system in options.system or SYSTEMS:
            name, _, chunk = system.partition("/")
            tokens, done = int(chunk or CHUNK_TOKENS), partial(note, system)
            if name == "vllm":
                await on_vllm(tokens, model, loads, done)
            else:
                await on_baton(name, tokens, options, model, loads, done)
    compare(rows)
    if options.svg:
        options.svg.write_text(plot(rows, targets))
    return runs


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", action="append", help="default: all of " + ", ".join(SYSTEMS))
    parser.add_argument("--rate", type=float, action="append", help=f"prompts/s; default {RATES}")
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of a point")
    parser.add_argument("--warm-seconds", type=float, default=4.0, help="warm-up before a point")
    parser.add_argument("--prompt-tokens", type=int, default=3000, help="tokens of a long prompt")
    parser.add_argument("--size", choices=SIZES, default="154M", help="size of the model")
    parser.add_argument(
        "--engine", choices=("sim", "torch"), default="torch", help="Baton's engine"
    )
    parser.add_argument("--kv", default="1GiB", help="KV memory of each worker and the store")
    parser.add_argument("--first-token", type=float, default=8.0, help="target, seconds")
    parser.add_argument("--inter-token", type=float, default=0.2, help="target, seconds")
    parser.add_argument("--nice", type=int, default=5, help="decode's niceness with shared cores")
    parser.add_argument(
        "--from", dest="sources", type=Path, action="append", help="show these results"
    )
    parser.add_argument("--svg", type=Path, help="also write a plot here")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--system combined --rate 2 --seconds 1 --warm-seconds 0.5 --prompt-tokens 600 "
        "--engine sim --size 6M --kv 32MiB",
    )
