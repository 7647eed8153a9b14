"""Linear maps; on a CPU in bfloat16, their weights are packed once in oneDNN's layout."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear


class Linear(Protocol):
    """The map x ↦ x · weightᵀ + bias."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """[tokens, in] → [tokens, out]"""


MakeLinear = Callable[[Tensor, Tensor | None], Linear]
"""Creates a map from a weight [out, in], whose layout it may change, and a bias [out] or None."""


@dataclass(frozen=True, slots=True)
class TorchLinear:
    """A linear map that torch computes."""

    weight: Tensor
    """[out, in]; if packed, only oneDNN knows the layout."""
    bias: Tensor | None
    """[out]"""
    packed: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] → [tokens, out]"""
        if not self.packed:
            return linear(x, self.weight, self.bias)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, "none", [], ""
        )
        return found


@dataclass(frozen=True, slots=True)
class ScaledHead:
    """A model's head whose logits are divided by a number, or bounded by one, if it is not 0."""

    head: Linear
    divisor: float
    softcap: float

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, vocab], in float32 or more."""
        logits = self.head(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / self.divisor
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap else logits


def make_linear(weight: Tensor, bias: Tensor | None) -> TorchLinear:
    """Return torch's linear map with weight [out, in], packed where that is faster.

    Without packing, oneDNN converts a bfloat16 weight in every call: with few tokens that costs as
    much as the product.
    """
    if not packs(weight):
        return TorchLinear(weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return TorchLinear(packed, bias, packed=True)


def packs(weight: Tensor) -> bool:
    """Return whether such a weight is packed."""
    plain = weight.device.type != "cpu" or weight.dtype is not torch.bfloat16
    return not plain and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
