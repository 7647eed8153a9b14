"""Capacity of an engine, from its settings."""

from collections.abc import Callable

from baton.engine.base import ContextLimit
from baton.engine.paged.planning.plan import SchedulerLimits
from baton.host.cgroup import memory_limit
from baton.settings import EngineSettings, StartupError

_MIB = 1024 * 1024
BLOCK_TOKENS = 16
"""Default, unless set otherwise."""


def scheduler_limits(settings: EngineSettings) -> SchedulerLimits:
    """Return the scheduler's limits."""
    return SchedulerLimits(
        block_tokens=settings.block_tokens or BLOCK_TOKENS,
        max_running=settings.max_running,
        # A sequence waits at least until the next step.
        max_waiting=max(1, settings.max_waiting),
        chunk_tokens=settings.chunk_tokens,
        decode_chunk_tokens=settings.decode_chunk_tokens or settings.chunk_tokens,
        paused_share=settings.paused_share,
    )


def page_count(settings: EngineSettings, block_bytes: int) -> int:
    """Return the number of KV blocks that fit.

    Raises:
        StartupError: none fit.
    """
    pages = settings.kv_bytes // block_bytes
    if pages == 0:
        raise StartupError(
            f"BATON_ENGINE_KV_BYTES is {settings.kv_bytes}, and one KV block of this model takes "
            f"{block_bytes}: set it to at least a few hundred blocks."
        )
    return pages


def check_memory(settings: EngineSettings, limit: Callable[[], int | None] = memory_limit) -> None:
    """Check that the KV pages and the weights fit into the cgroup's memory limit.

    For an engine whose pages are in the machine's main memory. Otherwise the kernel would kill the
    process once the pages are written to.

    Raises:
        StartupError: they do not fit.
    """
    allowed = limit()
    if allowed is None:
        return
    files = [] if settings.model is None else settings.model.glob("*.safetensors")
    weights = sum(file.stat().st_size for file in files)
    if settings.kv_bytes + weights > allowed:
        raise StartupError(
            f"engine.kv_bytes ({settings.kv_bytes // _MIB} MiB) and the model's weights "
            f"({weights // _MIB} MiB) exceed the cgroup's memory limit of {allowed // _MIB} MiB: "
            "lower "
            "BATON_ENGINE_KV_BYTES or --engine-kv-bytes, or raise the limit."
        )


def context_size(
    settings: EngineSettings, model_tokens: int, pages: int
) -> tuple[int, ContextLimit]:
    """Return the maximum sequence length, and its reason: as set, or as model and pages allow.

    Raises:
        StartupError: the length that is set exceeds that.
    """
    asked = settings.context_tokens
    held = pages * (settings.block_tokens or BLOCK_TOKENS)
    if asked > model_tokens:
        raise StartupError(
            f"BATON_ENGINE_CONTEXT_TOKENS is {asked}, and the model's context is {model_tokens}: "
            "lower it."
        )
    if asked > held:
        raise StartupError(
            f"BATON_ENGINE_CONTEXT_TOKENS is {asked}, and BATON_ENGINE_KV_BYTES holds the KV of "
            f"{held} tokens: lower the first or raise the second."
        )
    if asked and asked < model_tokens:
        return asked, ContextLimit.SETTING
    if held < model_tokens:
        return held, ContextLimit.KV_MEMORY
    return model_tokens, ContextLimit.CHECKPOINT
