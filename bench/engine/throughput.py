"""Engine throughput, and the machine's limit and vLLM: `python -m bench.engine.throughput`.

A random Llama of 292M parameters in bfloat16. Decode: tokens per second at batch 1, 8 and 32 after
512-token prompts. Prefill: prompt tokens per second. With the compiled operators there are two
variants of Baton's engine: `baton`, which is deterministic, and `onednn`, which is not and uses
oneDNN's linear maps. The engines take turns, case by case, with the same prompts. The best round
counts, since the machine may have other work. The limit of decode is the sequence of linear maps
plus reading the KV once; of prefill, the sequence plus attention's arithmetic at the same rate,
with the faster linear maps.

    python -m bench.engine.throughput [--device cuda] [--rounds 3] [--native off] [--json FILE]

vLLM is included if it is installed, by `make vllm` for CPUs. --device cuda measures a GPU, with
a second variant `triton`, which is deterministic.
"""

import argparse
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any

import torch

from baton.engine.native.build import build
from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.linear import MakeLinear, make_linear
from baton.engine.vllm.environment import is_cpu_build
from bench.engine.case import CASES, CHUNK_TOKENS, CLOCKS, Case
from bench.engine.engines import Contender, Ours, torch_settings, vllm
from bench.engine.limits import limits
from bench.harness import cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.table import Table

Results = dict[str, list[float]]


async def take_turns(
    engines: Mapping[str, Contender], cases: list[Case], rounds: int
) -> dict[str, Results]:
    """Return seconds by case and engine, one per round.

    The first round is a warm-up without prefill: its decode cases read enough prompts.
    """
    found: dict[str, Results] = {case.name: {name: [] for name in engines} for case in cases}
    has_decode = any(case.steps for case in cases)
    for turn in range(rounds + 1):
        for case in cases:
            if not turn and has_decode and not case.steps:
                continue
            # The first engine changes from round to round.
            for name in list(engines)[:: 1 if turn % 2 else -1]:
                seconds = await engines[name].run(case, turn)
                if turn:
                    found[case.name][name].append(seconds)
    return found


def show(results: dict[str, Any], cases: list[Case]) -> None:
    """Print the table."""
    found = results["limits"]
    starts = ", ".join(f"{name} {each:.1f} s" for name, each in results["start_seconds"].items())
    print(
        f"{results['threads']} threads, {results['clock']} time, torch {torch.__version__}, "
        f"vLLM {results['vllm'] or 'not installed'}, {results['seconds_in_all']:.0f} s in all"
    )
    print(
        f"reads {found['read_gb_per_second']:.1f} GB/s, multiplies "
        f"{found['matmul_tflops']:.2f} TFLOP/s (a square product); starts: {starts}"
    )
    ours = list(results["start_seconds"])
    columns = [(name, "7.0f") for name in ours]
    if results["vllm"]:
        columns += [("vllm", "7.0f"), *((f"{name}/vllm", "12.2f") for name in ours)]
    columns += [("limit", "7.0f"), *((f"{name} of it", "13.2f") for name in ours)]
    columns += [(f"chain {name}", "13.0f") for name in ours]
    table = Table(("tok/s", "<17"), *columns)
    for case in cases:
        tokens = case.batch * (case.steps or case.prompt)
        seconds = {name: min(each) for name, each in results["seconds"][case.name].items()}
        limit = found["cases"][case.name]
        row = [tokens / seconds[name] for name in ours]
        if results["vllm"]:
            row += [tokens / seconds["vllm"], *(seconds["vllm"] / seconds[name] for name in ours)]
        row += [tokens / limit["seconds"], *(limit["seconds"] / seconds[name] for name in ours)]
        row += [tokens / limit["chain_seconds"][name] for name in ours]
        table.row(case.name, *row)
    print("chain: the linear maps alone")


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    if options.native is None:
        options.native = "required" if options.device == "cpu" else "off"
    torch.set_num_threads(options.threads)
    cases = [case for case in CASES if options.cases in case.name]
    model = random_llama(options.size)
    maps: dict[str, MakeLinear] = {"baton": make_linear}
    settings = {"baton": "auto"}
    if options.native != "off":
        native = NativeKernels(build().path, deterministic=True)
        maps = {"baton": native.make_linear, "onednn": make_linear}
        settings = {"baton": "required", "onednn": "off"}
    elif options.device != "cpu":
        # Triton is included only in torch's build for CUDA.
        from baton.engine.cuda.kernels import TritonKernels

        maps["triton"] = TritonKernels(torch.device(options.device)).make_linear
        settings = {"baton": "off", "triton": "required"}
    found = limits(model, cases, torch.device(options.device), options.clock, maps, options.share)
    ours = {
        name: Ours(torch_settings(options, model, deterministic), options.clock)
        for name, deterministic in settings.items()
    }
    engines: dict[str, Contender] = dict(ours)
    version = None
    async with AsyncExitStack() as stack:
        # vLLM's builds are for CPUs or for GPUs.
        installed = find_spec("vllm") and is_cpu_build() == (options.device == "cpu")
        if installed and not options.no_peers:
            engines["vllm"] = peer = await stack.enter_async_context(vllm(options, model))
            version = peer.version
        seconds = await take_turns(engines, cases, options.rounds)
    results = {
        "native": options.native,
        "threads": options.threads,
        "clock": options.clock,
        "torch": torch.__version__,
        "vllm": version,
        "start_seconds": {name: each.start_seconds for name, each in ours.items()},
        "seconds_in_all": time.monotonic() - began,
        "limits": found,
        "seconds": seconds,
    }
    show(results, cases)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", choices=SIZES, default="292M")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--native", choices=("auto", "off", "required"), default=None)
    parser.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument("--kv-bytes", type=int, default=2 << 30)
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    help_ = "share of the time to measure limits; default: 1"
    parser.add_argument("--share", type=float, default=1.0, help=help_)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--bind", default="", help="vLLM's cores; empty: the first")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=3,
        smallest="--rounds 1 --size 6M --threads 1 --no-peers --share 0.1 --kv-bytes 33554432 "
        '--cases "decode 1 x 512"',
    )
