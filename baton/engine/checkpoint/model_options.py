"""What a model computes differently from Llama: by its family, and by its config.json.

A family is one row of `FAMILIES`. Fields that config.json sets override those of the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from baton.engine.checkpoint.rope_config import LACKS, Rope
from baton.engine.support.documents import CheckpointError, read_document


@dataclass(frozen=True, slots=True)
class NormNames:
    """Names of a layer's norms in the checkpoint; empty: the layer has no such norm."""

    before_attention: str = "input_layernorm"
    after_attention: str = ""
    """Of attention's output, before it is added to the residual stream."""
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str = ""


Activation = Literal["silu", "gelu_tanh", "clamped_swish"]
"""Of a gate: silu, the GELU approximated by tanh, or gpt-oss's: a bounded silu of 1.702 times the
gate, whose bounded values are increased by one."""
_ACTIVATIONS: Mapping[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
"""By their names in config.json."""
GATED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names of a mixture of experts in the checkpoint."""

    block: str = "mlp"
    router: str = "gate"
    maps: tuple[str, str, str] = GATED


@dataclass(frozen=True, slots=True)
class ExpertOptions:
    """A layer's experts. Numbers of 0 are given by config.json."""

    names: ExpertNames = ExpertNames()
    count: int = 0
    per_token: int = 0
    size: int = 0
    """Values inside each expert."""
    normalized: bool = True
    """Whether the weights of a token's experts add up to one."""
    dense_layers: tuple[int, ...] = ()
    """Layers that have one MLP instead."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Differences from Llama; the defaults are Llama's."""

    norms: NormNames = NormNames()
    norm_offset: float = 0.0
    """Added to the weights of norms."""
    activation: Activation = "silu"
    """Of MLPs. config.json may name another one, unless the family has its own."""
    wide_head_norms: bool = False
    """Norms of queries and keys span all heads, instead of one head each."""
    rotary_share: float = 1.0
    """Share of a head's values that are rotated: the first ones."""
    interleaved_rotary: bool = False
    """Pairs are adjacent values, instead of the halves of what is rotated."""
    unrotated_every: int = 0
    """The last of so many layers has no position embedding, unless config.json lists them; 0: all
    layers have."""
    unrotated_layers: tuple[int, ...] = ()
    attention_scale: float | None = None
    """Factor of attention scores; None: 1 / √head_size."""
    attention_softcap: float = 0.0
    """Bound of attention scores; 0: none."""
    windows: tuple[int, ...] = ()
    """Last tokens that each layer sees, 0: all; empty: all layers see all."""
    local_rope: Rope | None = None
    """Rotary embedding of layers with a window, if it is another one."""
    scaled_embedding: bool = False
    """Whether embeddings are multiplied by √hidden_size."""
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    """Factor of what attention and MLP add to the residual stream."""
    logits_divisor: float = 1.0
    logits_softcap: float = 0.0
    """Bound of logits; 0: none."""
    experts: ExpertOptions | None = None


LLAMA = ModelOptions()
_GEMMA = ModelOptions(norm_offset=1.0, activation="gelu_tanh", scaled_embedding=True)
_GEMMA2_NORMS = NormNames(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)

FAMILIES: Mapping[str, ModelOptions] = MappingProxyType(
    {
        "llama": LLAMA,
        "qwen2": LLAMA,
        "qwen3": LLAMA,
        "qwen3_moe": ModelOptions(experts=ExpertOptions(normalized=False)),
        "mixtral": ModelOptions(
            experts=ExpertOptions(ExpertNames("block_sparse_moe", maps=("w1", "w3", "w2")))
        ),
        "olmoe": ModelOptions(wide_head_norms=True, experts=ExpertOptions(normalized=False)),
        "gpt_oss": ModelOptions(
            activation="clamped_swish", experts=ExpertOptions(ExpertNames(router="router"))
        ),
        "gemma": _GEMMA,
        "gemma2": replace(_GEMMA, norms=_GEMMA2_NORMS, attention_softcap=50.0, logits_softcap=30.0),
        "gemma3": replace(_GEMMA, norms=_GEMMA2_NORMS),
        "phi3": LLAMA,
        "olmo2": ModelOptions(
            norms=NormNames("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
            wide_head_norms=True,
        ),
        "granite": ModelOptions(attention_scale=1.0),
        "glm4": ModelOptions(
            norms=NormNames(
                "input_layernorm",
                "post_self_attn_layernorm",
                "post_attention_layernorm",
                "post_mlp_layernorm",
            ),
            rotary_share=0.5,
            interleaved_rotary=True,
        ),
        "smollm3": ModelOptions(unrotated_every=4),
    }
)
"""Families of the torch engine. Biases, and weights that are stored joined, need no row: tensors of
the checkpoint show them."""


class _OptionsDocument(msgspec.Struct):
    """Fields of config.json that change a model's options."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    hidden_act: str | None = None
    hidden_activation: str | None = None
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | UnsetType | None = UNSET
    final_logit_softcapping: float | UnsetType | None = UNSET
    use_bidirectional_attention: bool | None = None
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    partial_rotary_factor: float | None = None
    rope_parameters: dict[str, Any] | None = None
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: int | None = None
    attention_multiplier: float | None = None
    embedding_multiplier: float | None = None
    residual_multiplier: float | None = None
    logits_scaling: float | None = None
    num_experts: int | None = None
    num_local_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool | None = None
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None


def read_options(path: Path, family: str, windows: tuple[int, ...]) -> ModelOptions:
    """Return the options of a model.

    Args:
        path: of its config.json.
        family: a name in `FAMILIES`.
        windows: of its layers, as of `ModelOptions`.

    Raises:
        CheckpointError: the file is damaged, or requires what the torch engine lacks.
    """
    document = read_document(path, _OptionsDocument)
    base = FAMILIES[family]
    _refuse_unknown(path, document)
    scalar = document.query_pre_attn_scalar
    rope = document.rope_parameters or {}
    given: dict[str, Any] = {
        "rotary_share": rope.get("partial_rotary_factor", document.partial_rotary_factor),
        "activation": _activation(path, document, base),
        "windows": windows,
        "attention_scale": scalar**-0.5 if scalar else document.attention_multiplier,
        "attention_softcap": _softcap(document.attn_logit_softcapping),
        "logits_softcap": _softcap(document.final_logit_softcapping),
        "embedding_multiplier": document.hidden_size**0.5
        if base.scaled_embedding
        else document.embedding_multiplier,
        "residual_multiplier": document.residual_multiplier,
        "logits_divisor": document.logits_scaling,
        "unrotated_layers": _unrotated(document, base),
        "experts": _experts(path, document, base.experts),
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _refuse_unknown(path: Path, document: _OptionsDocument) -> None:
    unknown = {
        "use_bidirectional_attention": document.use_bidirectional_attention,
        "swiglu_alpha other than 1.702": document.swiglu_alpha != 1.702,
        "swiglu_limit other than 7": document.swiglu_limit != 7.0,
    }
    for what, present in unknown.items():
        if present:
            raise CheckpointError(f"{path} requires {what}, {LACKS}.")


def _activation(path: Path, document: _OptionsDocument, base: ModelOptions) -> Activation:
    if base.activation != LLAMA.activation:
        return base.activation
    name = document.hidden_activation or document.hidden_act or "silu"
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"{path} requires hidden_act {name}, {LACKS}.")
    return _ACTIVATIONS[name]


def _softcap(given: float | UnsetType | None) -> float | None:
    """Return a bound; null is none, and a field that is not there leaves it to the family."""
    return None if given is UNSET else given or 0.0


def _unrotated(document: _OptionsDocument, base: ModelOptions) -> tuple[int, ...]:
    layers = range(document.num_hidden_layers)
    if not base.unrotated_every:
        return ()
    if document.no_rope_layers:
        # Named for the layers without, the list has a 1 for each layer with rotation.
        return tuple(i for i in layers if not document.no_rope_layers[i])
    every = document.no_rope_layer_interval or base.unrotated_every
    return tuple(i for i in layers if (i + 1) % every == 0)


def _experts(
    path: Path, document: _OptionsDocument, base: ExpertOptions | None
) -> ExpertOptions | None:
    if base is None:
        return None
    count = document.num_local_experts or document.num_experts or 0
    per_token = document.num_experts_per_tok or 0
    if not 0 < per_token <= count or document.decoder_sparse_step < 1:
        raise CheckpointError(
            f"{path} has inconsistent numbers of experts: {per_token} of {count} for each token."
        )
    normalized = document.norm_topk_prob
    dense = set(document.mlp_only_layers or ())
    return ExpertOptions(
        base.names,
        count,
        per_token,
        document.moe_intermediate_size or document.intermediate_size,
        base.normalized if normalized is None else normalized,
        tuple(
            i
            for i in range(document.num_hidden_layers)
            if i in dense or (i + 1) % document.decoder_sparse_step
        ),
    )
