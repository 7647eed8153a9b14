"""A load of streamed completions from a separate process, with a core to itself."""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import uvloop

from bench.serving.load.over_grpc import run_grpc
from bench.serving.load.over_http import run_http
from bench.serving.load.streams import Load, Observed


def run(load: Load) -> Observed:
    """Run a load in another process; return its results."""
    prompts = random.Random(load.seed).sample(list(load.prompts), len(load.prompts))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run_here, replace(load, prompts=prompts)).result()


def _run_here(load: Load) -> Observed:
    seen = Observed(began=time.perf_counter())
    numbers = iter(range(load.requests))
    uvloop.run((run_grpc if load.grpc else run_http)(load, lambda: next(numbers, None), seen))
    seen.ended = time.perf_counter()
    seen.cpu = time.process_time()
    return seen
