"""GPUs: memory, bandwidth and arithmetic, as their data sheets say."""

from dataclasses import dataclass
from math import isfinite
from typing import Final

from baton.planning.errors import PlanError

_GB, _TB, _TERA = 10**9, 10**12, 10**12


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as its data sheet describes it."""

    name: str
    memory_bytes: int
    bandwidth: float
    """Bytes per second between the GPU and its memory."""
    flops: float
    """Floating-point operations per second of dense bfloat16 matrices, without sparsity."""
    product: str = ""
    """The label `nvidia.com/gpu.product` of its nodes; empty: not known."""
    source: str = ""
    """Where the numbers are from."""


def _gpu(name: str, gb: float, tb: float, tflops: float, product: str, source: str) -> Gpu:
    sheet = f"NVIDIA {source} data sheet"
    return Gpu(name, round(gb * _GB), tb * _TB, tflops * _TERA, product, sheet)


# Sheets give sparse arithmetic for GPUs since Ampere; here is half of it.
GPUS: Final = {
    gpu.name: gpu
    for gpu in (
        _gpu("a10", 24, 0.600, 125, "NVIDIA-A10", "A10"),
        _gpu("a100-40gb", 40, 1.555, 312, "NVIDIA-A100-SXM4-40GB", "A100"),
        _gpu("a100", 80, 2.039, 312, "NVIDIA-A100-SXM4-80GB", "A100"),
        _gpu("l4", 24, 0.300, 121, "NVIDIA-L4", "L4"),
        _gpu("l40s", 48, 0.864, 362, "NVIDIA-L40S", "L40S"),
        _gpu("h100", 80, 3.35, 989, "NVIDIA-H100-80GB-HBM3", "H100 (SXM)"),
        _gpu("h100-pcie", 80, 2.0, 756, "NVIDIA-H100-PCIe", "H100 (PCIe)"),
        _gpu("h200", 141, 4.8, 989, "NVIDIA-H200", "H200"),
        _gpu("b200", 180, 8.0, 2250, "NVIDIA-B200", "DGX B200"),
    )
}
"""GPUs that are known, by the names of `baton plan --gpu`."""


def find_gpu(name: str, memory_bytes: float = 0, bandwidth: float = 0, flops: float = 0) -> Gpu:
    """Return a GPU by its name, with values that differ from its data sheet.

    Args:
        name: one of `GPUS`, or another one, if all values are given.
        memory_bytes: 0: as the data sheet says.
        bandwidth: bytes per second; 0: as the data sheet says.
        flops: dense bfloat16 operations per second; 0: as the data sheet says.

    Raises:
        PlanError: it is unknown, and a value is missing; or a value is no finite number.
    """
    if not all(map(isfinite, (memory_bytes, bandwidth, flops))):
        raise PlanError("--gpu-memory, --gpu-bandwidth and --gpu-flops are finite numbers.")
    known = GPUS.get(name.lower())
    if known is None and not (memory_bytes and bandwidth and flops):
        raise PlanError(
            f"No GPU {name!r} is known. Known are {', '.join(GPUS)}; for another one, set "
            "--gpu-memory, --gpu-bandwidth and --gpu-flops from its data sheet."
        )
    given = bool(memory_bytes or bandwidth or flops)
    return Gpu(
        name=known.name if known else name,
        memory_bytes=round(memory_bytes) or (known.memory_bytes if known else 0),
        bandwidth=bandwidth or (known.bandwidth if known else 0.0),
        flops=flops or (known.flops if known else 0.0),
        product=known.product if known else "",
        source="options" if given or known is None else known.source,
    )
