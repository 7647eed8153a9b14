"""Attention of the compiled operators, compared with the machine's read and multiply rates.

Heads of the 292M model, KV in scattered pages. Decode: single tokens of sequences, bound by reading
KV; one case fits in the cache. Prefill: a whole prompt, bound by multiplying. The shortest of
several runs counts, since the machine may have other work. Rotating and writing KV is included.

    python -m bench.engine.attention [--threads 1] [--clock cpu] [--dtype bfloat16]
"""

import argparse
from dataclasses import dataclass, replace
from typing import Any

import torch

from baton.engine.native.build import build
from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.kernels import Heads
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.engine.torch.model import element_type
from bench.engine.case import CLOCKS
from bench.engine.limits import matmul_rate, read_bandwidth, seconds
from bench.harness import cli
from bench.harness.checkpoints import SIZES
from bench.harness.table import Table

BLOCK = 16
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Batch:
    """Sequences of `context` tokens; a call per layer computes the last `count` of them."""

    sequences: int
    context: int
    count: int
    layers: int
    """Computed one after the other: with enough layers, no layer's KV stays in the cache."""

    @property
    def name(self) -> str:
        kind = "decode" if self.count == 1 else "prefill"
        return f"{kind} {self.sequences} x {self.context}" + (" cached" * (self.layers == 1))

    @property
    def pairs(self) -> float:
        """Pairs of a token and a token that it attends to, per layer."""
        return self.sequences * self.count * (self.context - (self.count - 1) / 2)


BATCHES = (
    Batch(1, 256, 1, 1),
    Batch(1, 4096, 1, 12),
    Batch(8, 512, 1, 24),
    Batch(32, 512, 1, 8),
    Batch(1, 512, 512, 4),
    Batch(1, 2048, 2048, 4),
)


def per_call(kernels: NativeKernels, batch: Batch, options: argparse.Namespace) -> float:
    """Return the seconds of one layer's attention."""
    shape, dtype = SIZES["292M"], element_type(options.dtype)
    heads, kv_heads, size = shape["heads"], shape["kv_heads"], shape["head_size"]
    pages = -(-batch.context // BLOCK)
    kv = PagedKv(
        batch.sequences * pages,
        batch.layers,
        BLOCK,
        heads,
        kv_heads,
        size,
        dtype,
        CPU,
        kernels,
    )
    for page in kv.pool:
        page.normal_()
    order = torch.randperm(batch.sequences * pages).tolist()
    start = batch.context - batch.count
    queries = [
        Query(order[i * pages : (i + 1) * pages], start, batch.context, start)
        for i in range(batch.sequences)
    ]
    step = kv.plan([[query] for query in queries])
    angles = torch.zeros(batch.sequences * batch.count, 1, size // 2, dtype=dtype)
    rotation = (angles + 1, angles)  # by nothing, so that a call's lines can be used again
    lines = torch.randn(batch.sequences * batch.count, (heads + 2 * kv_heads) * size).to(dtype)

    def run() -> None:
        for layer in range(batch.layers):
            kernels.attend(kv, step, Heads(layer, rotation, None, None, 1e-6), lines)

    return seconds(run, CPU, options.clock, options.share) / batch.layers


def measure(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    kernels = NativeKernels(build().path)
    dtype = element_type(options.dtype)
    shape = SIZES["292M"]
    bandwidth = read_bandwidth(CPU, options.clock, options.share)
    # Without instructions for bfloat16, torch multiplies it far more slowly than float32.
    rate = max(
        matmul_rate(CPU, kind, options.clock, options.share) for kind in {dtype, torch.float32}
    )
    print(
        f"{options.threads} threads, {options.clock} time, {options.dtype}: "
        f"reads {bandwidth / 1e9:.1f} GB/s, multiplies {rate / 1e9:.0f} GFLOP/s"
    )
    results: dict[str, Any] = {"read": bandwidth, "multiply": rate}
    table = Table(
        ("a layer's attention", "<20"),
        ("µs", "8.0f"),
        ("GB/s", "5.1f"),
        ("of reads", "8.2f"),
        ("GFLOP/s", "7.0f"),
        ("of product", "10.2f"),
    )
    for each in BATCHES:
        batch = replace(each, layers=min(each.layers, options.layers))
        took = per_call(kernels, batch, options)
        tokens = batch.sequences * batch.context
        read = tokens * 2 * shape["kv_heads"] * shape["head_size"] * dtype.itemsize / took
        done = batch.pairs * 4 * shape["heads"] * shape["head_size"] / took
        table.row(batch.name, took * 1e6, read / 1e9, read / bandwidth, done / 1e9, done / rate)
        results[batch.name] = took
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="cpu: with --threads 1")
    parser.add_argument("--layers", type=int, default=24, help="at most; default: 24")
    parser.add_argument("--share", type=float, default=1.0, help="of the time; default: 1")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--layers 2 --share 0.1")
