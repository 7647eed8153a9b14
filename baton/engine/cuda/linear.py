"""Linear maps with one order of sums, regardless of the number of rows.

A matrix multiplication library chooses its tiles, and the split of the inner dimension, by the
number of rows. Here both are a function of the weight's shape alone, and every tile has the same
number of rows. Unused rows are computed in vain, which costs little as long as reading the weight
dominates the time.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64
"""Rows of a tile: the minimum that matrix units of current GPUs process together."""
_OUTPUTS = 64
_INPUTS = 64
"""Number of inputs that are summed together."""
_PROGRAMS = 256
"""Target number of programs for one tile of rows; fewer underuse a large GPU's memory bandwidth."""
_LEAST_INPUTS = 256
"""Minimum inputs in one part of the inner dimension."""


@triton.jit
def _multiply(  # type: ignore[no-untyped-def]  # Triton's language
    x,
    weight,
    sums,
    rows,
    outputs,
    inputs,
    part_inputs,
    tile_rows: tl.constexpr,
    tile_outputs: tl.constexpr,
    step_inputs: tl.constexpr,
):
    """Write one tile of one part's sums: float32 [parts, rows, outputs]."""
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    output = tl.program_id(1) * tile_outputs + tl.arange(0, tile_outputs)
    part = tl.program_id(2)
    first = part * part_inputs
    last = tl.minimum(first + part_inputs, inputs)
    found = tl.zeros((tile_rows, tile_outputs), dtype=tl.float32)
    for at in range(first, last, step_inputs):
        i = at + tl.arange(0, step_inputs)
        left = tl.load(
            x + row.to(tl.int64)[:, None] * inputs + i[None, :],
            mask=(row[:, None] < rows) & (i[None, :] < last),
            other=0.0,
        )
        right = tl.load(
            weight + output.to(tl.int64)[None, :] * inputs + i[:, None],
            mask=(output[None, :] < outputs) & (i[:, None] < last),
            other=0.0,
        )
        found = tl.dot(left, right, found, input_precision="ieee")
    kept = (row[:, None] < rows) & (output[None, :] < outputs)
    place = (part.to(tl.int64) * rows + row[:, None]) * outputs + output[None, :]
    tl.store(sums + place, found, mask=kept)


def part_count(outputs: int, inputs: int) -> int:
    """Return the number of parts of the inner dimension, from the weight's shape alone."""
    wanted: int = triton.cdiv(_PROGRAMS, triton.cdiv(outputs, _OUTPUTS))
    return max(1, min(wanted, inputs // _LEAST_INPUTS))


@dataclass(frozen=True, slots=True)
class TiledLinear:
    """The map x ↦ x · weightᵀ + bias."""

    weight: Tensor
    """[out, in]"""
    bias: Tensor | None
    """[out]"""

    def __call__(self, x: Tensor, /) -> Tensor:
        """[tokens, in] → [tokens, out]"""
        rows, (outputs, inputs) = x.shape[0], self.weight.shape
        if not rows:
            return x.new_empty(0, outputs)
        parts = part_count(outputs, inputs)
        # Parts begin at a step of the sum: all but the last have whole steps.
        part_inputs = triton.cdiv(triton.cdiv(inputs, parts), _INPUTS) * _INPUTS
        sums = torch.empty(parts, rows, outputs, dtype=torch.float32, device=x.device)
        grid = (triton.cdiv(rows, _ROWS), triton.cdiv(outputs, _OUTPUTS), parts)
        launch: Any = _multiply[grid]
        launch(
            x.contiguous(),
            self.weight,
            sums,
            rows,
            outputs,
            inputs,
            part_inputs,
            tile_rows=_ROWS,
            tile_outputs=_OUTPUTS,
            step_inputs=_INPUTS,
        )
        found = sums[0]
        for part in range(1, parts):  # in order: a reduction by torch may choose another order
            found += sums[part]
        if self.bias is not None:
            found += self.bias
        return found.to(x.dtype)
