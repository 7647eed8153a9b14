"""Choose the operators of the torch engine: compiled ones, or plain torch."""

import torch

from baton.engine.base import Operators
from baton.engine.checkpoint.model_config import ModelConfig
from baton.engine.native.build import Built, build, built, why_absent
from baton.engine.native.kernels import NativeKernels
from baton.engine.native.variants import cpu_features
from baton.engine.torch.kernels import Kernels, PlainKernels
from baton.settings import EngineSettings, StartupError
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


def choose_kernels(
    settings: EngineSettings, config: ModelConfig, dtype: str, threads: int
) -> tuple[Kernels, Operators]:
    """Return the compiled kernels if they are enabled and available, else the plain ones.

    Args:
        settings: of the engine.
        config: of the model.
        dtype: data type of computation.
        threads: number of threads of kernels that have their own.

    Raises:
        StartupError: they are required and not available, or cannot be deterministic.
    """
    found = _find(settings, config)
    if settings.device != "cpu" and settings.deterministic == "required" and dtype == "bfloat16":
        kernels, operators = _triton(settings.device)
    elif isinstance(found, str):
        kernels, operators = _plain(settings, found)
    else:
        kernels, operators = _native(settings, found, dtype, threads)
    if settings.deterministic == "required" and not kernels.deterministic:
        why = (
            f"the dtype is {dtype}"
            if operators.variant or settings.device != "cpu"
            else f"there are no compiled operators: {operators.reason}"
        )
        raise StartupError(
            f"BATON_ENGINE_DETERMINISTIC is required and {why}: run `make native` on a CPU and "
            "serve in bfloat16, or set auto. Sums in float32 and float64 are rounded so finely "
            "that tokens were never, or hardly ever, seen to depend on them."
        )
    log.info("engine.operators.selected", variant=operators.variant, reason=operators.reason)
    return kernels, operators


def why_inexact(
    settings: EngineSettings, kernels: Kernels, operators: Operators, dtype: str
) -> str:
    """Return why another batch may yield other tokens, and the remedy; empty: it yields the same.

    Args:
        settings: of the engine.
        kernels, operators: as of `choose_kernels`.
        dtype: data type of computation.
    """
    if kernels.deterministic or dtype == "float64":
        return ""
    if dtype != "bfloat16":
        return f"sums in {dtype} depend on the batch, and very seldom a token with them"
    required = "BATON_ENGINE_DETERMINISTIC=required"
    if settings.deterministic == "off":
        why = f"BATON_ENGINE_DETERMINISTIC is off; {required} makes them the same"
    elif settings.device != "cpu":
        why = f"{required} makes them the same"
    elif not operators.variant:
        why = f"there are no compiled operators: {operators.reason}"
    else:
        why = (
            f"this CPU has AMX, whose products are faster; {required} makes them the same, "
            "BATON_ENGINE_DTYPE=float32 all but the same"
        )
    return f"sums in bfloat16 depend on the batch, and sometimes a token with them: {why}"


def _find(settings: EngineSettings, config: ModelConfig) -> Built | str:
    """Return the library to load, or why there is none."""
    if settings.device != "cpu":
        return f"there are none for {settings.device}"
    if not NativeKernels.can_run(config.heads, config.kv_heads, config.head_size):
        return "there are none for heads of this model's shape"
    if settings.native == "off":
        return settings.native_reason or "BATON_ENGINE_NATIVE is off"
    if settings.native == "auto":
        return built() or why_absent()
    try:
        return build()
    except (RuntimeError, OSError) as error:
        return f"they could not be built: {error}"


def _native(
    settings: EngineSettings, found: Built, dtype: str, threads: int
) -> tuple[Kernels, Operators]:
    deterministic = dtype == "bfloat16" and (
        settings.deterministic == "required"
        # oneDNN's products on AMX are several times as fast as those of AVX-512; the speed of the
        # operators' own on such CPUs was not measured.
        or (settings.deterministic == "auto" and "amx_bf16" not in cpu_features())
    )
    try:
        kernels = NativeKernels(found.path, deterministic=deterministic, threads=threads)
    except OSError as error:  # compiled for another system's libraries
        return _plain(settings, f"{found.path} cannot be loaded: {error}")
    return kernels, Operators(variant=found.variant.name, reason=found.reason)


def _plain(settings: EngineSettings, reason: str) -> tuple[Kernels, Operators]:
    if settings.native == "required":
        raise StartupError(
            f"BATON_ENGINE_NATIVE is required and there are no compiled operators: {reason}. "
            "Install a C++ compiler, or set auto."
        )
    return PlainKernels(), Operators(reason=reason)


def _triton(device: str) -> tuple[Kernels, Operators]:
    try:
        # Triton is included only in torch's build for CUDA.
        from baton.engine.cuda.kernels import TritonKernels
    except ImportError as error:
        raise StartupError(
            f"BATON_ENGINE_DETERMINISTIC is required, and Triton cannot be imported: {error}. "
            "Install torch's build for CUDA, or set auto."
        ) from None
    kernels = TritonKernels(torch.device(device))
    return kernels, Operators(variant=kernels.arithmetic)
