"""Kinds of vLLM's KV that Baton transfers: keys and values of all tokens of the context.

Layers that attend to a sliding window or within chunks keep them too, if vLLM is asked to: it then
allocates the same pages for all layers, and computes the window or the chunk as before.

config.json determines most of it beforehand (`baton.engine.support`). This checks vLLM itself,
which decides by its platform and its own table of models.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
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
