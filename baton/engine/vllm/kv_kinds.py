"""Kinds of vLLM's KV that Baton transfers: keys and values of all tokens of the context.

Layers that attend to a sliding window or within chunks keep them too, if vLLM is asked to: it then
allocates the same pages for all layers, and computes the window or the chunk as before.

config.json determines most of it beforehand (`baton.engine.support`). This checks vLLM itself,
which decides by its platform and its own table of models.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    replace_as,
)

from baton.settings import StartupError

_PARTIAL = (SlidingWindowSpec, ChunkedLocalAttentionSpec)
"""Kinds of layers that need only a part of the context, and can keep all of it."""


def check_config(config: VllmConfig, model: Path) -> None:
    """Reject unsupported kinds that vLLM's configuration shows, before the model is loaded.

    Raises:
        StartupError: Baton cannot transfer this model's KV; the text gives the reason.
    """
    if config.model_config.use_mla:
        raise _unsupported(model, "keeps latent attention (MLA)")
    if not config.cache_config.enable_prefix_caching:
        raise _unsupported(model, "is one for which vLLM turns its prefix cache off")


def whole_context(
    specs: Mapping[str, KVCacheSpec], block_tokens: int, model: Path
) -> dict[str, KVCacheSpec]:
    """Return the kinds of KV of a model's layers, such that each layer keeps the whole context.

    vLLM's `disable_hybrid_kv_cache_manager` does the same, but only for models that also have
    layers of full attention.

    Args:
        specs: by the name of the layer.
        block_tokens: tokens of each page; layers with windows may prefer others.
        model: the checkpoint's directory.

    Raises:
        StartupError: a layer keeps anything else than keys and values.
    """
    others = [each for each in specs.values() if type(each) not in (FullAttentionSpec, *_PARTIAL)]
    if others:
        raise _unsupported(model, f"keeps KV of another kind than attention's ({_names(others)})")
    return {
        name: _as_full(spec, block_tokens) if isinstance(spec, _PARTIAL) else spec
        for name, spec in specs.items()
    }


def _as_full(spec: KVCacheSpec, block_tokens: int) -> FullAttentionSpec:
    dropped = ("extra_retained_tokens",)
    return replace_as(spec, FullAttentionSpec, drop=dropped, block_size=block_tokens)


def keep_windows_apart(config: KVCacheConfig, specs: Mapping[str, KVCacheSpec]) -> KVCacheConfig:
    """Return a rank's configuration, such that layers with other windows have plans of their own.

    All layers of a group share pages. vLLM plans the attention of a step once per kind of layer,
    and a group of one kind has one plan: made without a window if the windows differ. On CPU, vLLM
    0.32 computes other tokens then, if it splits a sequence's KV and the model has sinks.

    Args:
        config: in which a group has one kind, merged of its layers'.
        specs: the kinds of the rank's layers, as of `whole_context`.
    """
    return replace(config, kv_cache_groups=[_apart(each, specs) for each in config.kv_cache_groups])


def _apart(group: KVCacheGroupSpec, specs: Mapping[str, KVCacheSpec]) -> KVCacheGroupSpec:
    merged = group.kv_cache_spec
    if not isinstance(merged, FullAttentionSpec):  # already one per layer
        return group
    layers: dict[str, KVCacheSpec] = {}
    for name in group.layer_names:
        spec = specs[name]
        assert isinstance(spec, FullAttentionSpec)
        layers[name] = replace(
            merged,
            sliding_window=spec.sliding_window,
            attention_chunk_size=spec.attention_chunk_size,
        )
    if len(set(layers.values())) == 1:
        return group
    apart = UniformTypeKVCacheSpecs(block_size=merged.block_size, kv_cache_specs=layers)
    return replace(group, kv_cache_spec=apart)


def check_groups(config: VllmConfig, specs: Sequence[KVCacheSpec], model: Path) -> None:
    """Reject unsupported kinds in the groups of vLLM's KV cache, and in its final configuration.

    Args:
        config: which vLLM changes as it creates its engine.
        specs: one per group.
        model: the checkpoint's directory.

    Raises:
        StartupError: Baton cannot transfer this model's KV; the text gives the reason.
    """
    check_config(config, model)
    if len(specs) != 1:
        raise _unsupported(model, f"keeps KV in {len(specs)} groups ({_names(specs)})")
    (spec,) = specs
    layers = spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
    for layer in layers:
        # Kinds that derive from full attention keep other data.
        if type(layer) is not FullAttentionSpec or layer.non_causal:
            raise _unsupported(
                model, f"keeps KV of another kind than full attention ({_names([layer])})"
            )


def _names(specs: Iterable[KVCacheSpec]) -> str:
    return ", ".join(sorted({type(spec).__name__ for spec in specs}))


def _unsupported(model: Path, why: str) -> StartupError:
    return StartupError(
        f"{model} {why}, which is not supported yet: Baton transfers keys and values of the whole "
        "context."
    )
