"""Order of a head's values, such that one rotation serves all conventions of rotary embedding.

Operators rotate the halves of a head against each other. A model that rotates adjacent values, or
only the first ones of a head, computes the same scores if the outputs of its query and key maps
change places: those that are rotated as a pair become half a head apart, and values that are not
rotated are paired with a rotation by zero. A score is a sum over a head, in any order.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from baton.engine.checkpoint.model_config import ModelConfig


def rotary_size(config: ModelConfig) -> int:
    """Return the number of a head's values that are rotated."""
    return int(config.head_size * config.options.rotary_share)


def head_order(config: ModelConfig) -> Tensor | None:
    """Return the places [head_size] from which a head's values come; None: as they are."""
    rotated = rotary_size(config)
    if rotated == config.head_size and not config.options.interleaved_rotary:
        return None
    first, second = torch.arange(rotated).chunk(2)
    if config.options.interleaved_rotary:
        first, second = torch.arange(0, rotated, 2), torch.arange(1, rotated, 2)
    rest = torch.arange(rotated, config.head_size).chunk(2)
    return torch.cat((first, *rest[:1], second, *rest[1:]))


def reordered(values: Tensor, order: Tensor | None) -> Tensor:
    """Return [heads · head_size, …] with each head's values in this order."""
    if order is None:
        return values
    by_head = values.view(-1, len(order), *values.shape[1:])
    return by_head[:, order.to(values.device)].view(values.shape)


def padded(rotation: tuple[Tensor, Tensor], head_size: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of all pairs, of which the last ones are not rotated."""
    cosines, sines = rotation
    rest = head_size // 2 - cosines.shape[-1]
    return (pad(cosines, (0, rest), value=1.0), pad(sines, (0, rest))) if rest else rotation
