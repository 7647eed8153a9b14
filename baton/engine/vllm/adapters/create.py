"""Creation of an engine's adapter table, with the adapters that it begins with."""

from collections.abc import Sequence
from pathlib import Path

from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.lora.adapter import Adapter
from baton.engine.lora.config import AdapterError
from baton.engine.lora.limits import AdapterLimits, layer_shapes, limits_of
from baton.engine.vllm.adapters.ranks import Call, LocalAdapters, RankAdapters, SeparateAdapters
from baton.engine.vllm.adapters.table import AdapterTable
from baton.settings import EngineSettings, StartupError


def create_table(settings: EngineSettings, call: Call, fixed: Sequence[Adapter]) -> AdapterTable:
    """Return the adapters of an engine that was created with slots.

    Args:
        settings: of the engine.
        call: of its core.
        fixed: adapters that it begins with.

    Raises:
        StartupError: one of these changed since it was checked.
    """
    separate = settings.tensor_parallel > 1
    ranks: RankAdapters = SeparateAdapters(call) if separate else LocalAdapters(call)
    table = AdapterTable(ranks, _limits(settings, ranks))
    for adapter in fixed:
        try:
            table.add_fixed(adapter)
        except AdapterError as error:
            raise StartupError(
                f"The adapter {adapter.name!r} of BATON_ENGINE_ADAPTERS cannot be used: {error}."
            ) from error
    return table


def _limits(settings: EngineSettings, ranks: RankAdapters) -> AdapterLimits | None:
    if not settings.adapter_slots:
        return None
    shapes = layer_shapes(tensor_shapes(weight_files(settings.model or Path())))
    adapted = {module: shapes[module] for module in ranks.adapted(shapes)}
    return limits_of(adapted, settings.max_adapter_rank, settings.adapter_slots)
