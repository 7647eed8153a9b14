"""A library of instructions that are tried first: on what grounds it is used, or not."""

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from baton.compiled.files import DIRECTORY_ENV, VARIANT_ENV
from baton.compiled.library import CompileError
from baton.engine.native import build as native_build
from baton.engine.native import tried, variants
from baton.engine.native.kernels import NativeKernels
from baton.engine.native.trial import documented
from tests.support.doubles.compiler import make_compiler

AMX = variants.VARIANTS[0]
NEXT = variants.VARIANTS[1]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with tiles, whose compiler makes files that are no libraries."""
    monkeypatch.setenv("CXX", make_compiler(tmp_path))
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "native"))
    monkeypatch.delenv(VARIANT_ENV, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(variants, "cpu_features", lambda: AMX.needs)
    tried.refusal.cache_clear()
    return tmp_path / "native"


def test_documented_sums_take_32_values_at_a_time() -> None:
    draw = np.random.default_rng(1)
    x, weight = (draw.integers(-64, 64, (n, 64)).astype(np.float32) / 64 for n in (3, 5))
    assert np.array_equal(documented(x, weight), x @ weight.T)  # nothing is rounded
    # 2^24 + 1 is no float32: what is added to it one by one is lost, what is added at once is not.
    large = np.zeros((1, 64), np.float32)
    large[0, :3] = 2**24, 1, 1
    large[0, 33:37] = 1, 1, 1, 1
    ones = np.ones((1, 64), np.float32)
    assert documented(large, ones)[0, 0] == 2**24 + 4
    large[0, 3] = 1
    assert documented(large, ones)[0, 0] == 2**24 + 2 + 4


def test_only_tiles_pass_the_trial(native_library: Path) -> None:
    found = tried._try(native_library)
    if NativeKernels(native_library).arithmetic.startswith("amx"):
        assert found == ""
    else:
        assert "the order in which tiles are documented to add" in found


def test_a_library_that_is_refused_leaves_the_next_best(directory: Path) -> None:
    refused = native_build.library(AMX).build()
    assert native_build.built() is None
    found = native_build.build()
    assert found.variant is NEXT
    assert f"{AMX.name} is not used: OSError: Could not load this library" in found.reason
    assert native_build.built() == found
    (kept,) = directory.glob("*.tried")
    assert kept.stem == refused.stem
    assert kept.read_text().startswith(platform.release())


def test_what_was_found_holds_for_this_machine_only(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(by: int, said: str) -> None:
        result = subprocess.CompletedProcess([], by, "", said)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)
        tried.refusal.cache_clear()

    library = native_build.library(AMX).build()
    ended(-4, "")
    assert tried.refusal(library) == "its test run was killed by signal 4"
    ended(0, "")
    assert tried.refusal(library) == "its test run was killed by signal 4", "kept"
    monkeypatch.setattr(platform, "release", lambda: "another kernel")
    tried.refusal.cache_clear()
    assert tried.refusal(library) == ""
    ended(1, "noise\nits sums differ\n")
    assert native_build.build().variant is AMX, "kept"


def test_a_machine_whose_only_variant_is_refused_says_why(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIANT_ENV, AMX.name)
    monkeypatch.setattr(native_build, "refusal", lambda path: "its test run failed")
    assert native_build.built() is None
    with pytest.raises(CompileError, match=f"{AMX.name} is not used: its test run failed"):
        native_build.build()


def test_emulated_tiles_are_taken_only_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(variants, "cpu_features", lambda: AMX.needs)
    monkeypatch.delenv(VARIANT_ENV, raising=False)
    assert variants.EMULATED not in (*variants.runnable(), *variants.compilable())
    monkeypatch.setenv(VARIANT_ENV, variants.EMULATED.name)
    assert variants.runnable() == (variants.EMULATED,)


def test_tiles_treat_denormals_as_zeros(native_library: Path) -> None:
    kernels = NativeKernels(native_library, deterministic=True)
    if not kernels.arithmetic.startswith("amx"):
        pytest.skip("these operators have no tiles")
    x = torch.full((1, 32), 2.0**-133, dtype=torch.bfloat16)  # below what float32 holds in full
    by = kernels.make_linear(torch.full((4, 32), 2.0**20, dtype=torch.bfloat16), None)
    assert not by(x).any()
    x = torch.full((1, 32), 2.0**-120, dtype=torch.bfloat16)
    by = kernels.make_linear(torch.full((4, 32), 2.0**-12, dtype=torch.bfloat16), None)
    assert not by(x).any(), "products of which each is a denormal"
    assert torch.tensor(2.0**-133) > 0, "what a tile computes leaves the thread's rounding alone"
