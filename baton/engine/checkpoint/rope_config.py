"""Rotary position embedding and its scaling, read from a checkpoint's config.json."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from baton.engine.support.documents import CheckpointError

Scaling = Literal["default", "linear", "llama3", "yarn", "longrope"]
LACKS = "which the torch engine does not support (try --engine vllm)"
_SCALINGS: tuple[Scaling, ...] = get_args(Scaling)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding (arXiv:2104.09864) and how it is stretched over long contexts."""

    theta: float
    scaling: Scaling = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class ScaledRope(Rope):
    """A scaling that changes the length of queries and keys too.

    A subclass, and not fields of `Rope`: the digest of a model covers these fields, and that of
    models without them stays what it was.
    """

    attention_factor: float = 1.0
    """Factor of cosines and sines, so that its square is a factor of attention scores."""


@dataclass(frozen=True, slots=True)
class YarnRope(ScaledRope):
    """YaRN (arXiv:2309.00071): slow pairs are stretched, fast ones are not, the others blended."""

    beta_fast: float = 32.0
    """Rotations within the original context, from which on a pair is not stretched."""
    beta_slow: float = 1.0
    """Rotations within the original context, up to which a pair is stretched by `factor`."""
    truncate: bool = True
    """Whether the bounds of the blended pairs are whole numbers."""


@dataclass(frozen=True, slots=True)
class LongRope(ScaledRope):
    """LongRoPE (arXiv:2402.13753): a factor per pair, found by search."""

    pair_factors: tuple[float, ...] = ()
    """`short_factor` or `long_factor` of config.json: one set for all positions of all sequences.

    Transformers changes from one to the other as a sequence outgrows the original context, and
    computes its KV again. Stored KV must not depend on the tokens that follow it, hence the
    engine's context decides, as in vLLM.
    """


class _RopeDocument(msgspec.Struct):
    rope_theta: float = 10_000.0
    rope_type: str | None = None
    type: str | None = None
    factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()


def read_rope(
    path: Path, fields: dict[str, Any], model_tokens: int, context_tokens: int, rotary_size: int
) -> Rope:
    """Read the rope parameters of a model.

    Args:
        path: of config.json, for errors.
        fields: `rope_parameters` of transformers 5, or `rope_scaling` with `rope_theta`.
        model_tokens: `max_position_embeddings`.
        context_tokens: the engine's longest sequence; 0: not set.
        rotary_size: values of a head that are rotated.

    Raises:
        CheckpointError: a field is damaged, or the scaling is not supported.
    """
    fields = {"original_max_position_embeddings": model_tokens} | fields
    try:
        found = msgspec.convert(fields, _RopeDocument)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{path} is damaged: {error} (rope).") from error
    asked = found.rope_type or found.type or "default"
    if asked in ("su", "yarn") and found.long_factor:
        asked = "longrope"  # its names in the first checkpoints of Phi-3
    scaling = next((name for name in _SCALINGS if name == asked), None)
    if scaling is None:
        raise CheckpointError(
            f"{path} requires rope scaling {asked}, {LACKS}. Supported: {', '.join(_SCALINGS)}."
        )
    original = found.original_max_position_embeddings
    factor = found.factor
    if factor is None:
        factor = model_tokens / original if scaling in ("yarn", "longrope") else 1.0
    if factor <= 0 or original < 1 or found.rope_theta <= 0:
        raise CheckpointError(f"{path} is damaged: a number that is not positive (rope).")
    shared = (
        found.rope_theta,
        scaling,
        factor,
        found.low_freq_factor,
        found.high_freq_factor,
        original,
    )
    if scaling == "yarn":
        return YarnRope(
            *shared,
            attention_factor=_yarn_attention_factor(found, factor),
            beta_fast=found.beta_fast or 32.0,
            beta_slow=found.beta_slow or 1.0,
            truncate=found.truncate,
        )
    if scaling == "longrope":
        pairs = found.long_factor if context_tokens > original else found.short_factor
        if len(pairs) != rotary_size // 2:
            raise CheckpointError(
                f"{path} is damaged: short_factor and long_factor need {rotary_size // 2} numbers "
                "each (rope)."
            )
        stretched = found.attention_factor
        if stretched is None:
            stretched = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return LongRope(*shared, attention_factor=stretched, pair_factors=pairs)
    return Rope(*shared)


def _yarn_attention_factor(found: _RopeDocument, factor: float) -> float:
    """Return YaRN's 0.1 · ln(factor) + 1, or the quotient of two such terms (DeepSeek)."""
    if found.attention_factor is not None:
        return found.attention_factor

    def length(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if found.mscale and found.mscale_all_dim:
        return length(found.mscale) / length(found.mscale_all_dim)
    return length(1.0)
