"""For which CPUs the operators are compiled, and which of these this machine is."""

import platform
from dataclasses import dataclass
from pathlib import Path

_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compile the operators."""

    name: str
    machines: tuple[str, ...]
    """Architectures, as `platform.machine` says them."""
    flags: tuple[str, ...]
    """The compiler's, GCC's and Clang's."""
    needs: frozenset[str]
    """Features that the CPU must have, as Linux lists them."""


VARIANTS = (
    Variant(
        "x86-64-v4-bf16",
        ("x86_64",),
        ("-march=x86-64-v4", "-mavx512bf16"),
        _V4 | {"avx512_bf16"},
    ),
    Variant("x86-64-v4", ("x86_64",), ("-march=x86-64-v4",), _V4),
    Variant("x86-64-v3", ("x86_64",), ("-march=x86-64-v3",), _V3),
    Variant("armv8", ("aarch64", "arm64"), ("-march=armv8-a",), frozenset()),
)
"""Best first. `-march=native` on a CPU with more than the best was measured to gain nothing."""


def compilable() -> tuple[Variant, ...]:
    """Return the variants of this machine's architecture, also those that its CPU cannot run."""
    machine = platform.machine()
    return tuple(variant for variant in VARIANTS if machine in variant.machines)


def runnable() -> tuple[Variant, ...]:
    """Return the variants that this CPU runs, best first."""
    features = cpu_features()
    return tuple(variant for variant in compilable() if variant.needs <= features)


def cpu_features() -> frozenset[str]:
    """Return what Linux says the CPU has; nothing where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return frozenset(found.partition(":")[2].split())
