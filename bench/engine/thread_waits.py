"""How an engine's threads wait for each other: `python -m bench.engine.thread_waits`.

In float32 the products are torch's, whose threads wait for each other a hundred times a step. By
default they spin; a thread that spins keeps a core from the one that it waits for where others
compute too. A combined worker in float32 decodes with a thread per core, each way to wait in a
process of its own, in turns: alone, and beside processes that never rest.

    python -m bench.engine.thread_waits [--busy 0 2 8] [--rounds 3] [--steps 60]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from baton.host.bundled import root
from baton.host.cgroup import usable_cores
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table

WAYS = {
    "spin (default)": {},
    "sleep": {"OMP_WAIT_POLICY": "passive"},
    "spin a little": {"GOMP_SPINCOUNT": "3000"},
}
STREAMS = 8


def decode(threads: int, steps: int) -> list[float]:
    """Decode with a fresh engine; return the seconds of each step."""
    from baton.engine.base import SequenceRequest
    from baton.engine.events import Admitted, SequenceEnded
    from baton.engine.factory import create_engine
    from baton.sampling import SamplingParams
    from baton.settings import EngineSettings

    model = root() / "models" / "baton-tiny"
    engine = create_engine(EngineSettings(model=model, dtype="float32", threads=threads))
    sampling = SamplingParams(temperature=0.0, max_tokens=steps, ignore_eos=True)
    for number in range(STREAMS):
        prompt = [(7 * i + number) % 4000 for i in range(32)]
        engine.add(SequenceRequest(id=number + 1, root=b"waits", prompt=prompt, sampling=sampling))
    took = []
    running = STREAMS
    while running:
        begun = time.perf_counter()
        events = engine.step()
        took.append(time.perf_counter() - begun)
        for event in events:
            if isinstance(event, Admitted):
                engine.start(event.id, event.cached_tokens)
            elif isinstance(event, SequenceEnded):
                engine.close(event.id)
                running -= 1
    return took[3:]  # the prompts are read by then


def _spin() -> None:
    while True:
        pass


def _measure(threads: int, steps: int, settings: dict[str, str]) -> list[float]:
    child = [sys.executable, "-m", "bench.engine.thread_waits", "--child", str(threads), str(steps)]
    done = subprocess.run(
        child, env={**os.environ, **settings}, capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a row per number of busy processes and way to wait."""
    cores = usable_cores()
    ways = {name: (cores, settings) for name, settings in WAYS.items()}
    ways["one thread"] = (1, {})
    table = Table(
        ("busy processes", "14d"),
        ("threads wait", "<16"),
        ("step p50 ms", "11.1f"),
        ("p99", "8.1f"),
    )
    results: list[dict[str, Any]] = []
    for busy in options.busy:
        others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(busy)]
        for other in others:
            other.start()
        try:
            found: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(options.rounds):
                for name, (threads, settings) in ways.items():
                    found[name] += _measure(threads, options.steps, settings)
        finally:
            for other in others:
                other.kill()
        for name, steps in found.items():
            middle, late = statistics.median(steps) * 1e3, percentile(steps, 99) * 1e3
            table.row(busy, name, middle, late)
            results.append({"busy": busy, "way": name, "p50_ms": middle, "p99_ms": late})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 8])
    parser.add_argument("--steps", type=int, default=60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.stdout.write(json.dumps(decode(int(sys.argv[2]), int(sys.argv[3]))) + "\n")
    else:
        cli.main(measure, __doc__, arguments, rounds=3, smallest="--rounds 1 --busy 0 --steps 10")
