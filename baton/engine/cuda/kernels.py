"""The torch engine's kernels for CUDA with `engine.deterministic`: plain torch's, except two.

Norms, gates and rotations process each row separately. Linear maps and attention use Triton.
"""

import torch
import triton
from torch import Tensor

from baton.engine.cuda.attention import attend
from baton.engine.cuda.linear import TiledLinear
from baton.engine.torch.attention import AttentionStep, KvPool
from baton.engine.torch.kernels import Heads, PlainKernels, rotated
from baton.engine.torch.linear import Linear


class TritonKernels(PlainKernels):
    """Kernels whose sums are a function of a token's own values and of the KV before it."""

    grouped = False
    deterministic = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def arithmetic(self) -> str:
        """Return what the bits of sums depend on: the GPU's generation, and the compiler."""
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"sm{major}{minor}/triton-{triton.__version__}"

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> Linear:
        return TiledLinear(weight.contiguous(), bias)

    def attend(self, kv: KvPool, step: AttentionStep, heads: Heads, qkv: Tensor) -> Tensor:
        q, k, v = rotated(kv, heads, qkv)
        kv.write(heads.layer, step, k, v)
        found = attend(
            q, kv.pool, heads.layer, step.spans, step.table, kv.block_tokens, heads.scores
        )
        return found.view(q.shape[0], -1)
