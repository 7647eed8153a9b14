"""Kinds of vLLM's KV that Baton transfers, and the groups that they make.

vLLM keeps layers of one kind in one or more groups, each with a block table of its own. All have
the same number of tokens per block here. Layers with windows or chunks keep the whole context
instead, in one group with those of full attention, where no layer attends to it, or where pages are
of unlike sizes, for which vLLM would choose blocks of unlike numbers of tokens.

config.json determines most of it beforehand (`baton.engine.support`). This checks vLLM itself,
which decides by its platform and its own table of models.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    replace_as,
)

from baton.kv.layout import GroupKind, KvGroup
from baton.settings import StartupError

_PARTIAL = (SlidingWindowSpec, ChunkedLocalAttentionSpec)
"""Kinds of layers that need only a part of the context, and can keep all of it."""
_BOUNDED = (*_PARTIAL, MambaSpec)
_STATES = (MambaAttentionBackendEnum.GDN_ATTN,)
"""Kinds of states whose tokens from a prefix are those of vLLM alone."""


def check_config(config: VllmConfig, model: Path) -> None:
    """Reject unsupported kinds that vLLM's configuration shows, before the model is loaded.

    Raises:
        StartupError: Baton cannot transfer this model's KV; the text gives the reason.
    """
    if config.model_config.use_mla:
        raise _unsupported(model, "keeps latent attention (MLA)")
    if not config.cache_config.enable_prefix_caching:
        raise _unsupported(model, "is one for which vLLM turns its prefix cache off")
    if config.model_config.is_hybrid and config.speculative_config is not None:
        raise StartupError(
            f"{model} keeps states, which cannot go back where a guess was wrong: set "
            "BATON_ENGINE_SPECULATIVE_TOKENS to 0."
        )
    if config.model_config.is_hybrid and current_platform.is_cpu():
        dtype = str(config.model_config.dtype).removeprefix("torch.")
        if dtype != "bfloat16":
            raise StartupError(
                f"{model} keeps states, which vLLM computes on CPU in bfloat16 only, and "
                f"BATON_ENGINE_DTYPE is {dtype}: set bfloat16."
            )


def layer_specs(
    specs: Mapping[str, KVCacheSpec], block_tokens: int, model: Path
) -> dict[str, KVCacheSpec]:
    """Return the kinds of KV of a model's layers, such that vLLM makes groups of equal blocks.

    Args:
        specs: by the name of the layer.
        block_tokens: tokens of each page; layers with windows may prefer others.
        model: the checkpoint's directory.

    Raises:
        StartupError: a layer keeps a kind that is not transferred.
    """
    for spec in specs.values():
        if type(spec) not in (FullAttentionSpec, *_BOUNDED):
            raise _unsupported(model, f"keeps KV of a kind ({_names([spec])})")
        if isinstance(spec, MambaSpec) and spec.mamba_type not in _STATES:
            raise _unsupported(model, f"keeps states of a kind ({spec.mamba_type.name})")
    whole = [spec for spec in specs.values() if isinstance(spec, FullAttentionSpec)]
    sizes = {
        replace(spec, block_size=block_tokens).page_size_bytes
        for spec in specs.values()
        if not isinstance(spec, MambaSpec)
    }
    promotes = not whole or len(sizes) > 1
    found: dict[str, KVCacheSpec] = {}
    for name, spec in specs.items():
        if isinstance(spec, _PARTIAL):
            found[name] = (
                _as_full(spec, block_tokens) if promotes else replace(spec, block_size=block_tokens)
            )
        else:
            found[name] = spec
    return found


def _as_full(
    spec: SlidingWindowSpec | ChunkedLocalAttentionSpec, block_tokens: int
) -> FullAttentionSpec:
    dropped = ("extra_retained_tokens",)
    return replace_as(spec, FullAttentionSpec, drop=dropped, block_size=block_tokens)


def keep_windows_apart(config: KVCacheConfig, specs: Mapping[str, KVCacheSpec]) -> KVCacheConfig:
    """Return a rank's configuration, such that layers with other windows have plans of their own.

    All layers of a group share pages. vLLM plans the attention of a step once per kind of layer,
    and a group of one kind has one plan: made without a window if the windows differ. On CPU, vLLM
    0.32 computes other tokens then, if it splits a sequence's KV and the model has sinks.

    Args:
        config: in which a group has one kind, merged of its layers'.
        specs: the kinds of the rank's layers, as of `layer_specs`.
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
    for spec in specs:
        layers: Iterable[KVCacheSpec] = [spec]
        if isinstance(spec, UniformTypeKVCacheSpecs):
            layers = spec.kv_cache_specs.values()
        for layer in layers:
            # Kinds that derive from full attention keep other data.
            if type(layer) not in (FullAttentionSpec, *_BOUNDED) or getattr(
                layer, "non_causal", False
            ):
                raise _unsupported(model, f"keeps KV of a kind ({_names([layer])})")
    blocks = {spec.block_size for spec in specs}
    if blocks != {config.cache_config.block_size}:
        sizes = ", ".join(map(str, sorted(blocks)))
        raise _unsupported(model, f"keeps KV in blocks of unlike numbers of tokens ({sizes})")
    if not any(isinstance(spec, FullAttentionSpec | UniformTypeKVCacheSpecs) for spec in specs):
        raise _unsupported(model, f"has no layer of full attention ({_names(specs)})")


def order_of(specs: Sequence[KVCacheSpec]) -> tuple[int, ...]:
    """Return vLLM's groups in Baton's order, in which those of full attention come first."""
    return tuple(sorted(range(len(specs)), key=lambda group: isinstance(specs[group], _BOUNDED)))


def kv_groups(specs: Sequence[KVCacheSpec], block_bytes: Sequence[int]) -> tuple[KvGroup, ...]:
    """Return the groups of a layout; none if all is one group of full attention.

    Args:
        specs: one per group, in Baton's order.
        block_bytes: bytes of a block of each.
    """
    if len(specs) == 1:
        return ()
    return tuple(_group(spec, size) for spec, size in zip(specs, block_bytes, strict=True))


def _group(spec: KVCacheSpec, block_bytes: int) -> KvGroup:
    match spec:
        case SlidingWindowSpec():
            return KvGroup(GroupKind.WINDOW, block_bytes, spec.sliding_window)
        case ChunkedLocalAttentionSpec():
            return KvGroup(GroupKind.CHUNK, block_bytes, spec.attention_chunk_size)
        case MambaSpec():
            return KvGroup(GroupKind.STATE, block_bytes)
        case _:
            return KvGroup(GroupKind.FULL, block_bytes)


def _names(specs: Iterable[KVCacheSpec]) -> str:
    return ", ".join(sorted({type(spec).__name__ for spec in specs}))


def _unsupported(model: Path, why: str) -> StartupError:
    return StartupError(
        f"{model} {why}, which is not supported yet: Baton transfers keys and values of attention, "
        "and states of gated delta networks."
    )
