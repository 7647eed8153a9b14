"""Part `load`: prompts of all lengths arrive while others decode, on Baton and on one vLLM."""

import argparse
from dataclasses import asdict, replace
from typing import Any

from baton.client import AsyncClient
from bench.harness.checkpoints import random_llama
from bench.harness.cluster import cluster
from bench.harness.table import Table
from bench.serving.generate import greedy
from bench.serving.load.mixed import from_json, to_json
from bench.vllm.arrivals import Arrivals, arrive, figures
from bench.vllm.peers import CHUNK_TOKENS, async_llm, two_cores

_COLUMNS = ("first_p50", "first_p95", "gap_p50", "gap_p95")
SETTINGS = {
    "BATON_ENGINE_CHUNK_TOKENS": str(CHUNK_TOKENS),
    "BATON_ENGINE_KV_BYTES": "1GiB",
    "BATON_STORE_ARENA_BYTES": "1GiB",
}


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the same load on both in turns."""
    model = random_llama("64M")
    cores = two_cores()
    load = Arrivals(requests=options.requests, per_second=options.rate)
    print(
        f"\nload: {load.requests} requests arrive at random, {load.per_second:g} per second, "
        f"prompts of {load.shortest} to {load.longest}\ntokens, {load.output_tokens} tokens out; "
        "64M Llama in bf16, chunks of 512. baton: 1 prefill + 1 decode worker, a\ncore each; "
        "vLLM: one AsyncLLM with chunked prefill on both. Milliseconds."
    )
    table = Table(
        ("round", "<5"),
        ("side", "<6"),
        *[(name, "8.1f") for name in ("TTFT p50", "p95", "interval p50", "p95")],
        ("cut", "3.0f"),
    )
    runs: list[dict[str, Any]] = []
    workers = ("--engine=vllm", "--prefill=1", "--decode=1", "--pin", f"--model={model}")
    async with (
        cluster(*workers, settings=SETTINGS) as up,
        AsyncClient(up.grpc, retries=0) as client,
        async_llm(model, cores, cores) as theirs,
    ):
        for turn in range(options.rounds + 1):
            this = replace(load, round=turn)
            for side in ("baton", "vllm")[:: 1 if turn % 2 else -1]:
                if side == "baton":
                    with theirs.paused():
                        requests = await arrive(greedy(client, up.model), this)
                else:
                    requests = from_json(await theirs.ask({"ask": "arrivals", **asdict(this)}))
                if turn:  # the first is a warm-up with every size
                    row = figures(requests)
                    runs.append({"round": turn, "side": side, **row, "requests": to_json(requests)})
                    times = [row[name] * 1e3 for name in _COLUMNS]
                    table.row(str(turn), side, *times, row["cut"])
    best = {
        side: {name: min(run[name] for run in runs if run["side"] == side) for name in _COLUMNS}
        for side in ("baton", "vllm")
    }
    for side, row in best.items():
        table.row("best", side, *[row[name] * 1e3 for name in _COLUMNS], "")
    ratios = [f"{best['baton'][name] / best['vllm'][name]:.2f}" for name in _COLUMNS]
    table.row("ratio", "", *ratios, "")
    return runs
