"""The machine's limits: read bandwidth, matrix products, and a model's bare linear maps."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from baton.engine.checkpoint.model_config import ModelConfig, read_config
from baton.engine.torch.checkpoint import Weights, read_weights
from baton.engine.torch.linear import Linear, MakeLinear, make_linear
from baton.engine.torch.mlp import ExpertsMlp, GatedMlp
from baton.engine.torch.model import element_type
from bench.engine.case import CHUNK_TOKENS, CLOCKS, WARM_UP_STEPS, Case

_READ_BYTES = 1 << 30
_MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}


def seconds(
    run: Callable[[], object], device: torch.device, clock: str, share: float = 1.0
) -> float:
    """Return the shortest of several runs, which together take at least this share of 0.3 s."""
    now = CLOCKS[clock]

    def once() -> float:
        began = now()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return now() - began

    once()
    found = [once()]
    while sum(found) < 0.3 * share or len(found) < 3:
        found.append(once())
    return min(found)


def read_bandwidth(device: torch.device, clock: str, share: float = 1.0) -> float:
    """Return bytes per second when all threads read memory that is in no cache."""
    data = torch.ones(int(_READ_BYTES * share) // 4, dtype=torch.float32, device=device)
    return data.nbytes / seconds(data.sum, device, clock, share)


def matmul_rate(device: torch.device, dtype: torch.dtype, clock: str, share: float = 1.0) -> float:
    """Return floating-point operations per second of a large square product."""
    size = int(_MATMUL_SIZE[device.type] * share)
    by = make_linear(torch.randn(size, size, device=device).to(dtype), None)
    x = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / seconds(lambda: by(x), device, clock, share)


class Chain:
    """The linear maps of a model, one after the other, with nothing between them."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self._weights = weights
        experts = config.options.experts
        size = config.mlp_size if experts is None else experts.size
        self._inputs = (config.hidden_size, config.heads * config.head_size, size)
        self._embedding = weights.embedding
        hidden, queries, mlp = self._inputs
        keys = config.kv_heads * config.head_size
        mlps = 1 if experts is None else experts.per_token
        per_layer = hidden * (queries + 2 * keys) + queries * hidden + mlps * 3 * hidden * mlp
        self.layer_values = config.layers * per_layer

    def seconds(self, tokens: int, rows: int, clock: str) -> float:
        """Return the seconds of one pass over some tokens, with the head over some rows.

        Experts share the tokens equally.
        """
        like = self._embedding
        hidden, queries, mlp = (
            torch.randn(tokens, size).to(like.device, like.dtype) for size in self._inputs
        )
        maps: list[tuple[Linear, Tensor]] = []
        for layer in self._weights.layers:
            maps += [(layer.qkv, hidden), (layer.o, queries)]
            parts: tuple[GatedMlp, ...] = ()
            count = tokens
            if isinstance(layer.mlp, GatedMlp):
                parts = (layer.mlp,)
            elif isinstance(layer.mlp, ExpertsMlp):
                parts = layer.mlp.experts[: tokens * layer.mlp.per_token]
                count = tokens * layer.mlp.per_token // len(parts)
            for part in parts:
                maps += [(part.gate_up, hidden[:count]), (part.down, mlp[:count])]
        maps.append((self._weights.head, hidden[:rows].contiguous()))

        def run() -> None:
            for by, x in maps:
                by(x)

        return seconds(run, like.device, clock)


def limits(
    model: Path,
    cases: list[Case],
    device: torch.device,
    clock: str,
    maps: Mapping[str, MakeLinear],
    share: float = 1.0,
) -> dict[str, Any]:
    """Return the least seconds of each case, and their parts.

    Args:
        model: the checkpoint's directory.
        cases: the cases.
        device: the device.
        clock: one of `CLOCKS`.
        maps: kinds of linear maps by name. The limit uses the fastest; all are reported.
        share: share of the memory to read and of the time to measure.
    """
    config = read_config(model)
    dtype = element_type(config.dtype)
    with torch.inference_mode():
        bandwidth = read_bandwidth(device, clock, share)
        answer: dict[str, Any] = {
            "read_gb_per_second": bandwidth / 1e9,
            "matmul_tflops": matmul_rate(device, dtype, clock, share) / 1e12,
        }
        chains = {
            name: Chain(config, read_weights(model, config, dtype, device, make))
            for name, make in maps.items()
        }
        answer["cases"] = {
            case.name: _limit(case, config, chains, bandwidth, dtype.itemsize, clock)
            for case in cases
        }
    return answer


def _limit(
    case: Case,
    config: ModelConfig,
    chains: Mapping[str, Chain],
    bandwidth: float,
    itemsize: int,
    clock: str,
) -> dict[str, Any]:
    if case.steps:
        context = case.prompt + WARM_UP_STEPS + case.steps / 2
        kv_bytes = 2 * config.layers * config.kv_heads * config.head_size * itemsize
        rest = case.batch * context * kv_bytes / bandwidth
        steps, tokens, rows = float(case.steps), case.batch, case.batch
    else:
        tokens = min(case.batch * case.prompt, CHUNK_TOKENS)
        steps, rows = case.batch * case.prompt / tokens, 1
    found = {name: chain.seconds(tokens, rows, clock) for name, chain in chains.items()}
    linear = min(found.values())
    if not case.steps:
        pairs = case.batch * case.prompt * (case.prompt + 1) / 2
        operations = 4 * config.layers * config.heads * config.head_size * pairs / steps
        layer_values = next(iter(chains.values())).layer_values
        rest = operations * linear / (2 * layer_values * tokens)
    return {
        "seconds": steps * (linear + rest),
        "chain_seconds": {name: steps * each for name, each in found.items()},
        "attention_seconds": steps * rest,
    }
