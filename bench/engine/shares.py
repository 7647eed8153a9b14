"""Time of a prefill by part: linear maps, attention, the rest: `python -m bench.engine.shares`.

A random Llama of 292M parameters in bfloat16 reads prompts in one step, on one thread. The shortest
round counts, in CPU time, since the machine may have other work. `product` is the rate of a large
square product of oneDNN. `attention` includes rotating and writing KV.

    python -m bench.engine.shares [--rounds 4] [--json FILE]
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from baton.engine.checkpoint.model_config import ModelConfig, read_config
from baton.engine.native.build import build
from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.checkpoint import read_weights
from baton.engine.torch.kv.groups import ModelKv
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.engine.torch.linear import Linear, MakeLinear
from baton.engine.torch.model import TransformerModel, last_hidden, make_model
from bench.engine.limits import matmul_rate
from bench.harness import cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.table import Table

CPU = torch.device("cpu")
BLOCK = 16


class Spent:
    """Seconds of CPU time by part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs the same and adds its seconds."""

        def timed(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return run(*arguments)
            finally:
                self.seconds[name] += time.thread_time() - began

        return timed

    def timed_maps(self, make: MakeLinear) -> MakeLinear:
        """Return a function that creates linear maps whose seconds are added."""

        def made(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
            return self.timed("maps", make(weight, bias))

        return made


def prefill(model: TransformerModel, kv: PagedKv, count: int, tokens: int) -> float:
    """Return the CPU seconds of a step that reads `count` prompts."""
    pages = -(-tokens // BLOCK)
    ids = torch.randint(300, model.config.vocab_tokens, (count * tokens,))
    rows = torch.arange(1, count + 1) * tokens - 1
    began = time.thread_time()
    queries = [Query(range(i * pages, (i + 1) * pages), 0, tokens, 0) for i in range(count)]
    step = kv.plan([[query] for query in queries])
    model.weights.head(last_hidden(model, ModelKv([kv]), ids, [step], rows))
    return time.thread_time() - began


def operations(config: ModelConfig, tokens: int) -> float:
    """Return the operations of the layers' linear maps."""
    keys = 2 * config.kv_heads * config.head_size
    queries = config.heads * config.head_size
    per_layer = config.hidden_size * (2 * queries + keys + 3 * config.mlp_size)
    return 2.0 * tokens * config.layers * per_layer


@torch.inference_mode()
def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    path = random_llama(options.size)
    config = read_config(path)
    rate = matmul_rate(CPU, torch.bfloat16, "cpu", options.share)
    print(f"1 thread, CPU time; product: {rate / 1e9:.0f} GFLOP/s")
    table = Table(
        ("prefill", "<10"),
        ("maps of", "<8"),
        ("tokens/s", "8.0f"),
        *((name, "9.1%") for name in ("maps", "attention", "gates", "norms", "rest")),
        ("maps, GFLOP/s", "13.0f"),
        ("of product", "10.2f"),
    )
    results = []
    for deterministic in (True, False):
        spent = Spent()
        kernels = NativeKernels(build().path, deterministic=deterministic)
        maps = spent.timed_maps(kernels.make_linear)
        for name, operator in (("attention", "attend"), ("gates", "gate"), ("norms", "add_norm")):
            setattr(kernels, operator, spent.timed(name, getattr(kernels, operator)))
        model = make_model(config, read_weights(path, config, torch.bfloat16, CPU, maps))
        heads = (config.heads, config.kv_heads, config.head_size)
        kv = PagedKv(256, config.layers, BLOCK, *heads, torch.bfloat16, CPU, kernels)
        for count, tokens in ((1, options.tokens), (2, options.tokens // 2)):
            best: dict[str, float] = {}
            for _ in range(options.rounds + 1):
                spent.seconds.clear()
                total = prefill(model, kv, count, tokens)
                if not best or total < best["total"]:
                    best = {**spent.seconds, "total": total}
            total, names = best["total"], ("maps", "attention", "gates", "norms")
            shares = [best[name] / total for name in names]
            done = operations(config, count * tokens) / best["maps"]
            kind = "baton" if deterministic else "onednn"
            row = [count * tokens / total, *shares, 1 - sum(shares), done / 1e9, done / rate]
            table.row(f"{count} x {tokens}", kind, *row)
            results.append({"prompts": [count, tokens], "maps_of": kind, "seconds": best})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="292M", help="size of the model")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per step; default: 2048")
    help_ = "share of the product's size; default: 1"
    parser.add_argument("--share", type=float, default=1.0, help=help_)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=3,
        smallest="--rounds 1 --size 6M --tokens 128 --share 0.1",
    )
