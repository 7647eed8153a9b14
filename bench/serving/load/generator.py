"""A load generator for streamed completions, on any cluster that serves already.

Keeps a number of requests in flight, over HTTP (chat or text completions as server-sent events) or
over Baton's gRPC API, from one or several processes.

    python -m bench.serving.load.generator --model NAME [--http HOST:PORT | --grpc HOST:PORT]
"""

import argparse
import json
import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from bench.harness import cli
from bench.serving.load.over_grpc import run_grpc
from bench.serving.load.over_http import run_http
from bench.serving.load.streams import Load, Observed, report


def run(load: Load, processes: int = 1) -> Observed:
    """Make a load from so many other processes; return what all of them saw."""
    draw = random.Random(load.seed)
    seen = Observed()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        parts = [
            replace(
                load,
                prompts=draw.sample(list(load.prompts), len(load.prompts)),
                concurrency=load.concurrency // processes + (index < load.concurrency % processes),
                requests=load.requests // processes + (index < load.requests % processes),
            )
            for index in range(processes)
        ]
        for part in pool.map(_run_here, parts):
            seen.merge(part)
    return seen


def _run_here(load: Load) -> Observed:
    seen = Observed(began=time.perf_counter())
    made = 0

    def next_request() -> int | None:
        nonlocal made
        late = load.seconds and time.perf_counter() - seen.began > load.seconds
        if made >= load.requests or late:
            return None
        made += 1
        return made - 1

    uvloop.run((run_grpc if load.grpc else run_http)(load, next_request, seen))
    seen.ended = time.perf_counter()
    seen.cpu = time.process_time()
    return seen


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", default="127.0.0.1:8000")
    parser.add_argument("--grpc", default="", help="host:port; speaks gRPC instead of HTTP")
    parser.add_argument("--model", required=True)
    parser.add_argument("--api", choices=["chat", "completions"], default="chat")
    parser.add_argument("--prompts", type=Path, help="a JSON list of texts")
    parser.add_argument("--words", type=int, default=64, help="of each prompt, without --prompts")
    parser.add_argument("--output-tokens", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    draw = random.Random(1)
    prompts = (
        json.loads(options.prompts.read_text())
        if options.prompts
        else [
            " ".join(f"w{draw.randrange(2000)}" for _ in range(options.words)) for _ in range(512)
        ]
    )
    load = Load(
        model=options.model,
        prompts=prompts,
        http=options.http,
        grpc=options.grpc,
        api=options.api,
        output_tokens=options.output_tokens,
        concurrency=options.concurrency,
        requests=options.requests,
        seconds=options.seconds,
    )
    found = report(load, run(load, options.processes))
    print(json.dumps(found, indent=1))
    return found


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--model baton-tiny",
        needs="a frontend that serves",
    )
