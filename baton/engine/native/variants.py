"""CPUs for which the operators are compiled, and those that match this machine.

`python -m baton.engine.native.variants` prints the latter, best first, and variants that are for
tests only.
"""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from baton.compiled.files import VARIANT_ENV

_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


_BF16 = _V4 | {"avx512_bf16"}
_BF16_FLAGS = ("-march=x86-64-v4", "-mavx512bf16")


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration for compiling the operators."""

    name: str
    machines: tuple[str, ...]
    """Architectures, as `platform.machine` reports them."""
    flags: tuple[str, ...]
    """Compiler flags for GCC and Clang."""
    needs: frozenset[str]
    """Features that the CPU must have, as Linux lists them."""
    tried: bool = False
    """Whether its library is tried on each machine before it is used there."""


VARIANTS = (
    Variant(
        "x86-64-v4-amx",
        ("x86_64",),
        (*_BF16_FLAGS, "-DBATON_TILES"),
        _BF16 | {"amx_tile", "amx_bf16"},
        tried=True,
    ),
    Variant("x86-64-v4-bf16", ("x86_64",), _BF16_FLAGS, _BF16),
    Variant("x86-64-v4", ("x86_64",), ("-march=x86-64-v4",), _V4),
    Variant("x86-64-v3", ("x86_64",), ("-march=x86-64-v3",), _V3),
    Variant("armv8", ("aarch64", "arm64"), ("-march=armv8-a",), frozenset()),
)
"""Variants, best first. `-march=native` on a CPU above the best was measured to gain nothing."""

EMULATED = Variant(
    "amx-emulated",
    ("x86_64",),
    ("-march=x86-64-v3", "-DBATON_TILES", "-DBATON_EMULATED_TILES"),
    _V3,
)
"""Emulated tiles, for tests on CPUs without them: used only if selected by name."""


def compilable() -> tuple[Variant, ...]:
    """Return the variants of this machine's architecture, even those that its CPU cannot run."""
    machine = platform.machine()
    return tuple(variant for variant in VARIANTS if machine in variant.machines)


def runnable() -> tuple[Variant, ...]:
    """Return the variants that this CPU runs, best first; or only the one selected by name."""
    named = os.environ.get(VARIANT_ENV)
    others = (EMULATED,) if named == EMULATED.name and platform.machine() == "x86_64" else ()
    return tuple(
        variant
        for variant in (*compilable(), *others)
        if variant.needs <= cpu_features() and named in (None, "", variant.name)
    )


def why_none_runs() -> str:
    """Return why `runnable` returned none, in words."""
    if named := os.environ.get(VARIANT_ENV):
        return f"{VARIANT_ENV} is {named}, which is not a variant for this CPU"
    return "this CPU is not supported; the minimum is x86-64-v3 (AVX2)"


def cpu_features() -> frozenset[str]:
    """Return the CPU features that Linux reports; empty if it reports none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return frozenset(found.partition(":")[2].split())


if __name__ == "__main__":
    for_tests = (EMULATED,) if EMULATED.needs <= cpu_features() else ()
    sys.stdout.writelines(f"{variant.name}\n" for variant in (*runnable(), *for_tests))
