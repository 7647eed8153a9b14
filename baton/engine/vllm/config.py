"""vLLM's configuration, made from Baton's settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from baton.engine.lora.adapter import Adapter
from baton.engine.support.kv_facts import sees
from baton.engine.vllm.groups.kinds import check_config
from baton.engine.vllm.registry import WORKER_ADDRESS
from baton.settings import EngineSettings, StartupError

CPU_BLOCK_TOKENS = 32
GPU_BLOCK_TOKENS = 16
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks for which vLLM has kernels."""
MAX_ADAPTERS_PER_STEP = 8
_NAMES = {
    "max seq len": "BATON_ENGINE_CONTEXT_TOKENS and BATON_ENGINE_KV_BYTES",
    "max_model_len": "BATON_ENGINE_CONTEXT_TOKENS",
    "block size": "BATON_ENGINE_BLOCK_TOKENS",
    "tensor parallel": "BATON_ENGINE_TENSOR_PARALLEL",
    "EngineArgs": "BATON_ENGINE_VLLM_ARGS",
    "lora": "BATON_ENGINE_ADAPTERS and BATON_ENGINE_ADAPTER_SLOTS",
}
"""Settings that determine the values named in vLLM's errors."""
_SAMPLER = "baton.engine.vllm.sampler:BatonSampler"
_CONNECTOR = "baton.engine.vllm.connector"


def make_config(
    settings: EngineSettings, engine_id: str, adapters: Sequence[Adapter], worker_address: str
) -> VllmConfig:
    """Return vLLM's configuration.

    Args:
        settings: of the engine.
        engine_id: under which components that vLLM creates find their engine in `registry`.
        adapters: to be loaded at start.
        worker_address: address that ranks in other processes join; empty: there are none.

    Raises:
        StartupError: vLLM rejects the configuration, or settings are incompatible.
    """
    if settings.model is None:
        raise StartupError(
            "The vllm engine needs a checkpoint: set BATON_ENGINE_MODEL to its directory."
        )
    _check(settings)
    on_cpu = settings.device == "cpu"
    block_tokens = settings.block_tokens or (CPU_BLOCK_TOKENS if on_cpu else GPU_BLOCK_TOKENS)
    arguments: dict[str, Any] = {
        "model": str(settings.model),
        "skip_tokenizer_init": True,
        # CUDA graphs are worth their startup time; compiling for CPUs needs a compiler and minutes.
        "enforce_eager": on_cpu,
        "dtype": settings.dtype,
        "seed": 0,
        "tensor_parallel_size": settings.tensor_parallel,
        # Bytes of each rank.
        "kv_cache_memory_bytes": settings.kv_bytes // settings.tensor_parallel,
        "block_size": block_tokens,
        # -1: as long as the cache holds, up to the model's maximum.
        "max_model_len": settings.context_tokens or -1,
        "max_num_seqs": settings.max_running,
        "max_num_batched_tokens": max(settings.chunk_tokens, settings.max_running, block_tokens),
        # While others run: they wait for the step.
        "long_prefill_token_threshold": min(settings.decode_chunk_tokens, settings.chunk_tokens),
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        # By default it is off with a connector of which vLLM cannot tell whether it knows groups.
        "disable_hybrid_kv_cache_manager": False,
        # What a window or a state leaves behind stays findable while nobody needs its memory.
        "prefix_cache_retention_interval": None,
        "scheduling_policy": "priority",
        "disable_log_stats": True,
        "kv_events_config": KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
        "kv_transfer_config": KVTransferConfig(
            kv_connector="BatonConnector",
            kv_connector_module_path=_CONNECTOR,
            kv_role="kv_both",
            engine_id=engine_id,
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={WORKER_ADDRESS: worker_address} if worker_address else {},
        ),
    }
    if sees(settings.model):
        # Its processor needs the tokenizer, and is called by `VllmPictures`, without a cache.
        arguments |= {"skip_tokenizer_init": False, "mm_processor_cache_gb": 0}
    if adapters or settings.adapter_slots:
        ranks = [adapter.rank for adapter in adapters]
        rank = max([*ranks, settings.max_adapter_rank] if settings.adapter_slots else ranks)
        count = len(adapters) + settings.adapter_slots
        arguments |= {
            "enable_lora": True,
            "max_lora_rank": next(each for each in LORA_RANKS if each >= rank),
            "max_loras": _slots(count, on_cpu),
            "max_cpu_loras": max(count, _slots(count, on_cpu)),
        }
    if draws_exactly(settings):
        arguments["logits_processors"] = [_SAMPLER]
    if settings.speculative_tokens:
        arguments["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": settings.speculative_tokens,
            "prompt_lookup_max": settings.speculative_ngram,
        }
    taken = sorted(arguments.keys() & settings.vllm_args.keys())
    if taken:
        raise StartupError(
            f"BATON_ENGINE_VLLM_ARGS sets {', '.join(taken)}, which Baton's own settings control: "
            "remove them."
        )
    try:
        arguments.update(settings.vllm_args)
        config = EngineArgs(**arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    except (TypeError, ValueError, RuntimeError, NotImplementedError, OSError) as error:
        raise refused(settings.model, error) from error
    check_config(config, settings.model)
    if on_cpu:
        _check_head_size(config, settings.model)
    if settings.tensor_parallel == 1:
        # On CPU the platform requires a process even for one rank.
        config.parallel_config.distributed_executor_backend = "uni"
    # The default is on for GPUs and off for CPUs; the setting applies to both.
    if settings.async_scheduling != "auto":
        config.scheduler_config.async_scheduling = settings.async_scheduling == "on"
    return config


def _check(settings: EngineSettings) -> None:
    """Reject settings that vLLM would reject in its own words, or only when a request arrives."""
    platform = current_platform.device_type
    if settings.device.partition(":")[0] != platform:
        raise StartupError(
            f"BATON_ENGINE_DEVICE is {settings.device}, and this vLLM runs on {platform}: set "
            f"{platform}, or install the vLLM for {settings.device}."
        )
    if settings.dtype == "float64":
        raise StartupError(
            "BATON_ENGINE_DTYPE is float64, which vLLM does not support: set float32 or bfloat16."
        )


def _check_head_size(config: VllmConfig, model: Path) -> None:
    size = config.model_config.get_head_size()
    known = CPUAttentionBackend.get_supported_head_sizes()
    if not config.model_config.use_mla and size not in known:
        raise StartupError(
            f"{model} has heads of {size} values, and vLLM's attention on CPU supports "
            f"{', '.join(map(str, known))}: serve it with the torch engine, or on a GPU."
        )


def _slots(adapters: int, on_cpu: bool) -> int:
    """Return the maximum number of adapters in one step; further ones wait for the next.

    vLLM's CPU kernels use slot -1, the last one, for a row of the base model: there is one slot
    more than adapters, so that the last one stays empty and adds nothing.
    """
    return adapters + 1 if on_cpu else min(adapters, MAX_ADAPTERS_PER_STEP)


def draws_exactly(settings: EngineSettings) -> bool:
    """Return whether Baton samples: vLLM allows no logits processor with speculation."""
    return settings.exact_draws and not settings.speculative_tokens


def refused(model: Path | None, error: BaseException) -> StartupError:
    """Return the error for a configuration that vLLM rejects at start: its first sentences, and
    Baton's settings for the values that it names.
    """
    text = " ".join(str(error).split()).partition(" [type=")[0]
    text = text.rpartition("Value error, ")[2] or type(error).__name__
    setting = next((setting for named, setting in _NAMES.items() if named in text), "")
    hint = f" See {setting}." if setting else ""
    return StartupError(f"vLLM cannot serve {model}: {text[:400].rstrip('.')}.{hint}")
