"""Kinds of vLLM's KV that Baton transfers: a single kind, of the whole context, in permanent pages.

config.json determines most of it beforehand (`baton.engine.support`). This checks vLLM itself,
which decides by its platform and its own table of models.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    UniformTypeKVCacheSpecs,
)

from baton.settings import StartupError


def check_config(config: VllmConfig, model: Path) -> None:
    """Reject unsupported kinds that vLLM's configuration shows, before the model is loaded.

    Raises:
        StartupError: Baton cannot transfer this model's KV; the text gives the reason.
    """
    if config.model_config.use_mla:
        raise _unsupported(model, "keeps latent attention (MLA)")
    window = config.cache_config.sliding_window
    if window is not None and window < config.model_config.max_model_len:
        raise _unsupported(model, f"keeps KV of the last {window} tokens only (sliding window)")
    if not config.cache_config.enable_prefix_caching:
        raise _unsupported(model, "is one for which vLLM turns its prefix cache off")


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
        raise _unsupported(model, f"keeps KV of {len(specs)} kinds ({_names(specs)})")
    (spec,) = specs
    layers = spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
    for layer in layers:
        if not _is_whole(layer):
            raise _unsupported(
                model, f"keeps KV of another kind than full attention ({_names([layer])})"
            )


def _is_whole(spec: KVCacheSpec) -> bool:
    """Return whether a layer keeps keys and values of all tokens, and attends to them.

    Kinds that derive from full attention keep other data.
    """
    return (
        type(spec) is FullAttentionSpec
        and spec.sliding_window is None
        and spec.attention_chunk_size is None
        and not spec.non_causal
    )


def _names(specs: Sequence[Any]) -> str:
    return ", ".join(sorted({type(spec).__name__ for spec in specs}))


def _unsupported(model: Path, why: str) -> StartupError:
    return StartupError(
        f"{model} {why}, which is not supported yet: Baton transfers one kind of KV, of the whole "
        "context."
    )
