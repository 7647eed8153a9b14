"""The memory that a cluster's workers and store will fill, checked before any of them starts."""

import os
from collections.abc import Callable, Iterable, Mapping
from math import prod

from baton.cli.shared.errors import CommandError
from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.support.documents import CheckpointError
from baton.host.cgroup import memory_limit
from baton.settings import EngineSettings

_MIB = 1024 * 1024
_BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}
_FLOATS = ("F64", "F32", "F16", "BF16")


def machine_memory() -> int:
    """Return the bytes that the processes of this machine, or of this cgroup, may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, memory_limit() or machine)


def require_memory(
    workers: Iterable[tuple[str, EngineSettings]],
    store_bytes: int,
    allowed: Callable[[], int] = machine_memory,
    models_at_once: int | None = None,
) -> None:
    """Check that KV pages, weights and the store's arena fit together.

    What else a process needs, a few hundred MiB, does not count: the check is for what cannot work.

    Args:
        workers: model and engine of each worker that may run at the same time as the others.
        store_bytes: size of the store's arena.
        allowed: returns the bytes that there are.
        models_at_once: most models whose workers run at the same time; None: all.

    Raises:
        CommandError: they do not fit.
    """
    of_model: dict[str, int] = {}
    weights: dict[str, int] = {}
    for model, engine in workers:
        if engine.device != "cpu":
            continue
        if model not in weights:
            weights[model] = 0 if engine.kind == "sim" else weight_bytes(engine)
        # The simulated engine has KV pages, and writes to them.
        of_model[model] = of_model.get(model, 0) + weights[model] + engine.kv_bytes
    if models_at_once is not None:
        largest = sorted(of_model, key=lambda model: -of_model[model])[:models_at_once]
        of_model = {model: of_model[model] for model in largest}
    needed, there = sum(of_model.values()) + store_bytes, allowed()
    if needed > there:
        raise CommandError(
            f"Not enough memory: {_told(of_model, store_bytes)} need {needed // _MIB} MiB, and "
            f"there are {there // _MIB} MiB. Start fewer workers or models, or lower "
            "BATON_ENGINE_KV_BYTES or BATON_STORE_ARENA_BYTES."
        )


def weight_bytes(engine: EngineSettings) -> int:
    """Return the bytes of a checkpoint's weights in the data type that the engine computes in."""
    if engine.model is None:
        return 0
    size = _BYTES.get(engine.dtype)
    try:
        files = weight_files(engine.model)
        if size is None:
            return sum(file.stat().st_size for file in files)
        shapes = tensor_shapes(files).values()
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    return sum(prod(one.shape) * size for one in shapes if one.dtype in _FLOATS)


def _told(of_model: Mapping[str, int], store_bytes: int) -> str:
    parts = [f"workers of {name} {size // _MIB} MiB" for name, size in of_model.items()]
    return ", ".join([*parts, f"the store {store_bytes // _MIB} MiB"])
