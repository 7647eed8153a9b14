"""All workers and the store fit into the machine's memory, or nothing starts."""

from pathlib import Path

import pytest

from baton.cli.cluster.local.models.memory import machine_memory, require_memory, weight_bytes
from baton.cli.shared.errors import CommandError
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.settings import EngineSettings

MIB = 1024 * 1024
SIM = EngineSettings(kind="sim", kv_bytes=100 * MIB)


def test_workers_of_all_models_and_the_store_are_summed() -> None:
    workers = [("a", SIM), ("a", SIM), ("b", SIM)]
    require_memory(workers, 50 * MIB, lambda: 350 * MIB)
    with pytest.raises(CommandError) as caught:
        require_memory(workers, 50 * MIB, lambda: 349 * MIB)
    assert str(caught.value).startswith(
        "Not enough memory: workers of a 200 MiB, workers of b 100 MiB, the store 50 MiB need 350 "
        "MiB, and there are 349 MiB."
    )


def test_weights_count_in_the_type_that_they_are_computed_in(tmp_path: Path) -> None:
    path = write_random_checkpoint(tmp_path / "tiny", dtype="bfloat16")
    sizes = {
        dtype: weight_bytes(EngineSettings.model_validate({"model": path, "dtype": dtype}))
        for dtype in ("auto", "bfloat16", "float32", "float64")
    }
    assert sizes["float32"] == 2 * sizes["bfloat16"] == sizes["float64"] // 2
    assert sizes["bfloat16"] < sizes["auto"] < sizes["float32"]


def test_what_lies_in_a_gpu_does_not_count() -> None:
    gpu = EngineSettings(kind="vllm", device="cuda", kv_bytes=100 * MIB)
    require_memory([("a", gpu)], MIB, lambda: MIB)
    assert machine_memory() > MIB
