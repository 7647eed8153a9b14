"""Layout of KV blocks in vLLM: all properties that change the meaning of a page's bytes."""

from vllm.config import VllmConfig
from vllm.platforms import current_platform

from baton.engine.vllm.environment import TESTED_VERSION
from baton.kv.layout import KvGroup, Layout


def vllm_layout(config: VllmConfig, backend: str, isa: str, groups: tuple[KvGroup, ...]) -> Layout:
    """Return the layout of an engine; `backend` and `isa` are a rank's `attention_format`."""
    model = config.model_config
    cache = config.cache_config
    parallel = config.parallel_config
    kept = cache.cache_dtype if cache.cache_dtype != "auto" else str(model.dtype)
    return Layout(
        engine=f"vllm/{TESTED_VERSION}/{backend}/{cache.kv_cache_layout}",
        backend=current_platform.device_type,
        isa=isa,
        dtype=kept.removeprefix("torch."),
        layers=model.get_num_layers(parallel),
        kv_heads=model.get_total_num_kv_heads(),
        head_size=model.get_head_size(),
        block_tokens=cache.block_size,
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        groups=groups,
    )


def attention_format(config: VllmConfig) -> tuple[str, str]:
    """Return the attention backend's name, and the instruction set on which its pages depend.

    The layers are known only where a rank runs.
    """
    # Runners of experts are listed next to the attention layers, and keep no KV.
    layers = config.compilation_config.static_forward_context.values()
    attention = [layer for layer in layers if hasattr(layer, "get_attn_backend")]
    names = {layer.get_attn_backend().get_name() for layer in attention}
    backend = "+".join(sorted(names))
    if current_platform.device_type != "cpu":
        return backend, ""
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    model, cache = config.model_config, config.cache_config
    isa = _get_attn_isa(model.dtype, cache.block_size, model.get_head_size(), cache.cache_dtype)
    return backend, isa
