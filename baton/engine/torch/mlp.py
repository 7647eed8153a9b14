"""The feed-forward part of a layer: one gated map, or experts of which a router selects some.

Tokens are grouped by expert, so that each expert's weights are read once. A token's result is the
sum over its experts in the order of their weights, in float32: it depends neither on the other
tokens of the batch nor on how many of them have an expert in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softmax

from baton.engine.checkpoint.model_options import Activation
from baton.engine.torch.kernels import Kernels
from baton.engine.torch.linear import Linear


class Mlp(Protocol):
    """The feed-forward part of a layer."""

    def __call__(self, kernels: Kernels, x: Tensor, /) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]"""


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """One gated map for all tokens (arXiv:2002.05202)."""

    gate_up: Linear
    """Gates and the values that they scale, concatenated."""
    down: Linear
    activation: Activation = "silu"

    def __call__(self, kernels: Kernels, x: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]"""
        return self.down(kernels.gate(self.gate_up(x), self.activation))


@dataclass(frozen=True, slots=True)
class ExpertsMlp:
    """A mixture of experts (arXiv:1701.06538): each token takes the sum of its best ones.

    An expert's weight is the softmax of its score.
    """

    router: Linear
    """hidden → scores of experts"""
    experts: tuple[GatedMlp, ...]
    per_token: int
    normalized: bool
    """Whether the softmax is over the selected experts alone."""

    def __call__(self, kernels: Kernels, x: Tensor) -> Tensor:
        """[tokens, hidden] → [tokens, hidden]"""
        weights, chosen = self.route(x)
        by_expert = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        rows = x[by_expert // self.per_token]
        found = self._compute(kernels, rows, counts)
        places = torch.empty_like(by_expert)
        places[by_expert] = torch.arange(len(by_expert), device=x.device)
        places = places.view(-1, self.per_token)
        total = torch.zeros(x.shape, dtype=weights.dtype, device=x.device)
        for nth in range(self.per_token):
            total += weights[:, nth : nth + 1] * found[places[:, nth]]
        return total.to(x.dtype)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights, in float32 or more, and ids of each token's experts, the best first."""
        scores = self.router(x)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.normalized:
            best, chosen = scores.topk(self.per_token)
            return softmax(best, dim=-1), chosen
        best, chosen = softmax(scores, dim=-1).topk(self.per_token)
        return best, chosen

    def _compute(self, kernels: Kernels, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the experts' outputs for rows in the order of experts, of so many each."""
        parts = zip(self.experts, torch.split(rows, list(counts)), strict=True)
        return torch.cat([expert(kernels, part) for expert, part in parts if len(part)])
