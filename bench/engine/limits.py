"""What the machine allows: read bandwidth, matrix products, the bare chain of a model's maps."""

from collections.abc import Callable

import torch

from baton.engine.model_config import ModelConfig
from baton.engine.torch.checkpoint import Weights
from baton.engine.torch.linear import Linear, make_linear
from bench.engine.case import CLOCKS

_READ_BYTES = 1 << 30
_MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}


def seconds(
    run: Callable[[], object], device: torch.device, clock: str, least: float = 0.3
) -> float:
    """The shortest of several runs."""
    now = CLOCKS[clock]

    def once() -> float:
        began = now()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return now() - began

    once()
    found = [once()]
    while sum(found) < least or len(found) < 3:
        found.append(once())
    return min(found)


def read_bandwidth(device: torch.device, clock: str) -> float:
    """Bytes per second when all threads read memory that is in no cache."""
    data = torch.ones(_READ_BYTES // 4, dtype=torch.float32, device=device)
    return _READ_BYTES / seconds(data.sum, device, clock)


def matmul_rate(device: torch.device, dtype: torch.dtype, clock: str) -> float:
    """Floating-point operations per second of a large square product."""
    size = _MATMUL_SIZE[device.type]
    by = make_linear(torch.randn(size, size, device=device).to(dtype), None)
    x = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / seconds(lambda: by(x), device, clock)


class Chain:
    """The linear maps of a model, one after the other, and nothing between them."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self._head = weights.head
        self._maps = [(layer.qkv, layer.o, layer.gate_up, layer.down) for layer in weights.layers]
        self._inputs = (config.hidden_size, config.heads * config.head_size, config.mlp_size)
        self._embedding = weights.embedding
        hidden, queries, mlp = self._inputs
        keys = config.kv_heads * config.head_size
        per_layer = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * mlp
        self.layer_values = config.layers * per_layer

    def seconds(self, tokens: int, rows: int, clock: str) -> float:
        """Of one pass over so many tokens, and the head over so many rows."""
        like = self._embedding
        hidden, queries, mlp = (
            torch.randn(tokens, size).to(like.device, like.dtype) for size in self._inputs
        )
        last = hidden[:rows].contiguous()

        def run() -> None:
            for qkv, o, gate_up, down in self._maps:
                qkv(hidden), o(queries), gate_up(hidden), down(mlp)
            self._head(last)

        return seconds(run, like.device, clock)


class PlainChain(Chain):
    """The same with torch's own linear, weights as the checkpoint has them."""

    def __init__(self, config: ModelConfig, like: Chain) -> None:
        self.__dict__.update(like.__dict__)
        hidden, queries, mlp = self._inputs
        keys = config.kv_heads * config.head_size
        shapes = ((queries + 2 * keys, hidden), (hidden, queries), (2 * mlp, hidden), (hidden, mlp))

        def plain(outputs: int, inputs: int) -> Linear:
            weight = torch.randn(outputs, inputs)
            return Linear(weight.to(self._embedding.device, self._embedding.dtype), None)

        self._maps = [tuple(plain(*shape) for shape in shapes) for _ in range(config.layers)]
        self._head = plain(config.vocab_tokens, hidden)
