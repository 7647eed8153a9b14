"""What an adapter must fit: the linear layers of its model, its rank and its size."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from baton.engine.checkpoint.files import TensorShape

UNKNOWN = (0, 0)
"""Shape of a layer whose weight is no plain matrix of floats."""
DEFAULT_SLOTS = 20
"""Adapters in memory at once, unless the settings say otherwise."""
FLOATS = ("F64", "F32", "F16", "BF16")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_RANGE = re.compile(r"(?<=\.)\{(\d+)-(\d+)\}(?=\.)")
_WIDEST_VALUE = 8
_HEADER_BYTES = 1024 * 1024

Shape = tuple[int, int]
"""[outputs, inputs]"""


@dataclass(frozen=True)
class AdapterLimits:
    """Which adapters an engine loads."""

    max_rank: int
    """The highest rank of a module."""
    slots: int
    """Adapters in memory at once."""
    modules: Mapping[str, Shape]
    """Shapes of the linear layers that an adapter may change, by their names, with ranges for
    numbers: `model.layers.{0-23}.self_attn.q_proj`.
    """

    def shape_of(self, module: str) -> Shape | None:
        """Return the shape of a linear layer; None: there is none of that name."""
        exact = self.modules.get(module)
        if exact is not None:
            return exact
        numbers = tuple(map(int, _NUMBER.findall(module)))
        for ranges, shape in self._by_form.get(_NUMBER.sub("*", module), ()):
            if all(low <= n <= high for n, (low, high) in zip(numbers, ranges, strict=True)):
                return shape
        return None

    @property
    def max_bytes(self) -> int:
        """The longest file of an adapter of all layers at the highest rank; 0: unknown."""
        sizes = [
            (count(names), outputs + inputs) for names, (outputs, inputs) in self.modules.items()
        ]
        if any(not size for _, size in sizes):
            return 0
        values = sum(number * size for number, size in sizes) * self.max_rank
        return _HEADER_BYTES + values * _WIDEST_VALUE

    @cached_property
    def _by_form(self) -> Mapping[str, Sequence[tuple[Sequence[tuple[int, int]], Shape]]]:
        """Entries with ranges, by their names with `*` for each."""
        found: dict[str, list[tuple[Sequence[tuple[int, int]], Shape]]] = defaultdict(list)
        for names, shape in self.modules.items():
            ranges = [(int(low), int(high)) for low, high in _RANGE.findall(names)]
            if ranges:
                found[_RANGE.sub("*", names)].append((ranges, shape))
        return found


def limits_of(shapes: Mapping[str, Shape], max_rank: int, slots: int) -> AdapterLimits:
    """Return the limits of a model.

    Args:
        shapes: of its linear layers, by their full names.
        max_rank, slots: as of `AdapterLimits`.
    """
    forms: dict[str, dict[tuple[int, ...], Shape]] = defaultdict(dict)
    for module, shape in shapes.items():
        numbers = tuple(map(int, _NUMBER.findall(module)))
        forms[_NUMBER.sub("*", module)][numbers] = shape
    modules: dict[str, Shape] = {}
    for form, found in forms.items():
        modules.update(_joined(form, found))
    return AdapterLimits(max_rank, slots, modules)


def checkpoint_limits(
    tensors: Mapping[str, TensorShape], max_rank: int, slots: int
) -> AdapterLimits:
    """Return the limits of a checkpoint of which every linear layer may have an adapter.

    Args:
        tensors: of the checkpoint. The shapes of weights other than plain matrices of floats, such
            as quantized ones, are unknown.
        max_rank, slots: as of `AdapterLimits`.
    """
    return limits_of(layer_shapes(tensors), max_rank, slots)


def layer_shapes(tensors: Mapping[str, TensorShape]) -> dict[str, Shape]:
    """Return the shapes of a checkpoint's layers by their full names."""
    shapes: dict[str, Shape] = {}
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        plain = kind == "weight" and tensor.dtype in FLOATS and len(tensor.shape) == 2
        if plain:
            outputs, inputs = tensor.shape
            shapes[module] = outputs, inputs
        else:
            shapes.setdefault(module, UNKNOWN)
    return shapes


def count(names: str) -> int:
    """Return how many layers names with ranges stand for."""
    return prod(int(high) - int(low) + 1 for low, high in _RANGE.findall(names))


def _joined(form: str, found: Mapping[tuple[int, ...], Shape]) -> Iterator[tuple[str, Shape]]:
    """Yield one entry for all numbers of a form if they are without gaps, and the shapes equal."""
    ranges = [(min(each), max(each)) for each in zip(*found, strict=True)]
    whole = prod(high - low + 1 for low, high in ranges) == len(found)
    if whole and len(set(found.values())) == 1:
        yield (
            _filled(form, [f"{{{low}-{high}}}" for low, high in ranges]),
            next(iter(found.values())),
        )
        return
    for numbers, shape in found.items():
        yield _filled(form, list(map(str, numbers))), shape


def _filled(form: str, values: Sequence[str]) -> str:
    rest = iter(values)
    return re.sub(r"(?<=\.)\*(?=\.)", lambda _: next(rest), form)
