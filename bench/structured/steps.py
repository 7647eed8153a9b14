"""Cost of grammars per decode step: `python -m bench.structured.steps [--native off]`.

Milliseconds of a decode step of the 292M model with 32 streams at temperature 1, without grammars
and with one each, in turns (five schemas, including any JSON, whose outputs do not end), with
vocabularies of 4,096 and 131,072. The median step counts, and the shortest round. vLLM with its
guidance backend is included if `make vllm` installed it.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SequenceEnded
from baton.engine.factory import create_engine
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.harness import cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.child import Helper, helper, log_path
from bench.harness.table import Table
from bench.structured.load import BATCH, MAX_TOKENS, SCHEMAS, STEPS, WARM_UP_STEPS, prompt

_FIELDS: dict[str, Any] = {"temperature": 1.0, "max_tokens": MAX_TOKENS, "ignore_eos": True}
PLAIN = [SamplingParams(seed=at, **_FIELDS) for at in range(BATCH)]
GUIDED = [
    SamplingParams(
        seed=at,
        grammar=Grammar.of("json_schema", json.dumps(SCHEMAS[at % len(SCHEMAS)])),
        **_FIELDS,
    )
    for at in range(BATCH)
]


def step_ms(engine: Engine, sampling: list[SamplingParams]) -> float:
    """Return the median milliseconds of a decode step of `BATCH` streams."""
    for number in range(BATCH):
        engine.add(SequenceRequest(number, b"bench", prompt(number), sampling[number]))
    running: set[int] = set()

    def step() -> None:
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.cached_tokens)
                running.add(event.id)
            elif isinstance(event, SequenceEnded):
                raise SystemExit(f"stream {event.id} ended: {event.reasons} {event.error}")

    while len(running) < BATCH or engine.stats().pending_prompt_tokens:
        step()
    for _ in range(WARM_UP_STEPS):
        step()
    marks = [time.perf_counter()]
    for _ in range(STEPS):
        step()
        marks.append(time.perf_counter())
    for number in range(BATCH):
        engine.close(number)
    return statistics.median(after - before for before, after in pairwise(marks)) * 1e3


@asynccontextmanager
async def vllm(model: Path, threads: int) -> AsyncIterator[Helper]:
    """Run vLLM until the block exits; its output goes to build/bench/vllm.log."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    settings = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    arguments = (model, json.dumps(SCHEMAS))
    with log_path("vllm").open("w") as log:
        started = helper("bench.structured.peer_vllm", *arguments, settings=settings, stderr=log)
        async with started as peer:
            print(f"vLLM {json.loads(await peer.receive())['version']}, guidance")
            yield peer


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for vocab in options.vocab:
        model = random_llama(options.size, vocab)
        engine = create_engine(
            EngineSettings(
                model=model,
                native=options.native,
                threads=options.threads,
                kv_bytes=options.kv_bytes,
            )
        )
        engine.warm_up()
        times: dict[str, dict[str, list[float]]] = {"baton": {"none": [], "guided": []}}
        async with AsyncExitStack() as stack:
            peer = None
            if not options.alone and find_spec("vllm") is not None:
                peer = await stack.enter_async_context(vllm(model, options.threads))
                times["vllm"] = {"none": [], "guided": []}
            for turn in range(options.rounds + (peer is not None)):
                for kind, sampling in (("none", PLAIN), ("guided", GUIDED)):
                    if peer is not None:
                        answer = await peer.ask({"guided": kind == "guided"})
                        if turn:  # its first round is a warm-up
                            times["vllm"][kind].append(answer["ms"])
                        with peer.paused():
                            times["baton"][kind].append(step_ms(engine, sampling))
                    else:
                        times["baton"][kind].append(step_ms(engine, sampling))
        engine.close_engine()
        table = Table(
            ("vocabulary", "10,"),
            ("engine", "<6"),
            ("none ms", "9.2f"),
            ("guided ms", "9.2f"),
            ("ratio", "6.3f"),
        )
        for name, found in times.items():
            none, guided = min(found["none"]), min(found["guided"])
            table.row(vocab, name, none, guided, guided / none)
        results.append({"vocab": vocab, "times_ms": times})
    return results


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 131072])
    parser.add_argument("--size", choices=SIZES, default="292M", help="size of the model")
    parser.add_argument("--native", default="auto", choices=("auto", "off", "required"))
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--kv-bytes", type=int, default=1 << 30, help="default: 1 GiB")
    parser.add_argument("--alone", action="store_true", help="without vLLM")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        _arguments,
        rounds=3,
        smallest="--rounds 1 --size 6M --vocab 4096 --alone --native off --threads 1 "
        "--kv-bytes 33554432",
    )
