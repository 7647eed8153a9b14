"""Prefill and decode on the same cores: `python -m bench.engine.shared_cores`.

One engine prefills prompts of 3,000 tokens with a thread per core, while another process decodes 8
streams without pause. For each niceness of decode it prints the prompt's time, the time expected
from the weights of the threads (`sched_prio_to_weight`), and the time of decode's steps.

    python -m bench.engine.shared_cores [--nice 0 5 12] [--decode-threads 1] [--json FILE]
"""

import argparse
import asyncio
import os
import statistics
from typing import Any

from bench.engine.case import Case
from bench.engine.engines import Ours, torch_settings
from bench.harness import cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.child import helper
from bench.harness.stats import percentile
from bench.harness.table import Table

WEIGHTS = {0: 1024, 3: 526, 5: 335, 8: 172, 12: 70, 15: 36, 19: 15}
"""The kernel's weights by niceness: `sched_prio_to_weight` in kernel/sched/core.c."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    options.native = "required"
    model = random_llama(options.size)
    ours = Ours(torch_settings(options, model, "required"), "wall")
    prompt, turn = Case(1, options.tokens, 0), 0

    async def prompts() -> list[float]:
        nonlocal turn
        found = []
        for _ in range(options.rounds):
            turn += 1
            found.append(await asyncio.to_thread(asyncio.run, ours.run(prompt, turn)))
        return found

    async def of_steps(nice: int) -> tuple[list[float], list[float]]:
        """Return the seconds of decode's steps since the last request, and p50, p99 and maximum."""
        steps: list[float] = (await peer.ask({"nice": nice}))["steps"]
        return steps, [percentile(steps, q) * 1e3 for q in (50, 99, 100)]

    settings = {"OMP_WAIT_POLICY": "passive"}
    arguments = (model, str(options.decode_threads), str(options.kv_bytes))
    neighbour = helper("bench.engine.neighbour", *arguments, settings=settings)
    table = Table(
        ("decode's niceness", "<18"),
        ("prompt s", "9.2f"),
        ("most", "6.2f"),
        ("times alone", "12.2f"),
        ("by weights", "11.2f"),
        ("step p50 ms", "12.0f"),
        ("p99", "6.0f"),
        ("worst", "6.0f"),
    )
    results: dict[str, Any] = {}
    async with neighbour as peer:
        await peer.receive()
        with peer.paused():
            await prompts()
            alone = statistics.median(await prompts())
        table.row("alone", alone, alone, 1.0, 1.0, 0.0, 0.0, 0.0)
        results["alone"] = alone
        await peer.ask({"nice": 0})
        await asyncio.sleep(options.seconds)
        steps, quantiles = await of_steps(0)
        table.row("decode alone", 0.0, 0.0, 0.0, 0.0, *quantiles)
        results["decode alone"] = steps
        cores = options.threads
        for nice in options.nice:
            share = WEIGHTS[nice] / (WEIGHTS[nice] + WEIGHTS[0])
            await peer.ask({"nice": nice})
            took = await prompts()
            steps, quantiles = await of_steps(nice)
            beside = statistics.median(took)
            by_weights = cores / (cores - options.decode_threads * share)
            table.row(nice, beside, max(took), beside / alone, by_weights, *quantiles)
            results[nice] = {"prompts": took, "steps": steps}
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="154M")
    parser.add_argument("--tokens", type=int, default=3000, help="per prompt; default: 3000")
    parser.add_argument("--seconds", type=float, default=3.0, help="of decode alone; default: 3")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kv-bytes", type=int, default=1 << 30, help="KV memory of each engine")
    parser.add_argument("--decode-threads", type=int, default=1)
    parser.add_argument("--nice", type=int, nargs="+", choices=WEIGHTS, default=[0, 5, 12])
    parser.set_defaults(device="cpu", chunk_tokens=512)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=4,
        smallest="--rounds 1 --size 6M --tokens 300 --seconds 0.2 --nice 5 --kv-bytes 33554432",
    )
