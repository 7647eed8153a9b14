"""The shape of a model, read from a checkpoint's config.json as transformers 4 or 5 writes it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from baton.engine.checkpoint.model_options import LLAMA, ModelOptions, read_options
from baton.engine.checkpoint.rope_config import LACKS, LongRope, Rope, read_rope
from baton.engine.support.architectures import TORCH_FAMILIES
from baton.engine.support.check import EngineKind, check_architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document
from baton.engine.support.kv_facts import KvFacts, layer_windows

DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a model, and what it computes differently from Llama."""

    family: str
    vocab_tokens: int
    hidden_size: int
    mlp_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    norm_epsilon: float
    rope: Rope
    context_tokens: int
    tied_embeddings: bool | None
    """Whether the output layer is the embedding. None: yes, if the checkpoint has no such layer."""
    dtype: str
    """The weights' element type in the checkpoint."""
    eos_token_ids: tuple[int, ...]
    options: ModelOptions = LLAMA


class _ModelConfigJson(msgspec.Struct):
    """The fields of config.json that are used."""

    architectures: list[str]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    original_max_position_embeddings: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_local_base_freq: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    tie_word_embeddings: bool | None = None
    torch_dtype: str | None = None
    dtype: str | None = None
    quantization_config: dict[str, Any] | None = None


class _Ends(msgspec.Struct):
    """Tokens that end a text, in config.json and generation_config.json."""

    eos_token_id: int | list[int] | None = None


def read_config(
    directory: Path, context_tokens: int = 0, kind: EngineKind = "torch"
) -> ModelConfig:
    """Read config.json and, where it exists, generation_config.json.

    Args:
        directory: of the checkpoint.
        context_tokens: the longest sequence; 0: the checkpoint's own. A sliding window as wide as
            that is full attention.
        kind: of the requesting engine.

    Raises:
        CheckpointError: a file is missing or damaged, or the kind of model is not supported.
    """
    path = directory / CONFIG
    check_architecture(directory, kind, context_tokens)
    document = read_document(path, _ModelConfigJson)
    family = next(TORCH_FAMILIES[name] for name in document.architectures if name in TORCH_FAMILIES)
    _refuse_unknown(path, document)
    facts = read_document(path, KvFacts)
    windows = layer_windows(facts, document.num_hidden_layers, context_tokens)
    options = read_options(path, family, windows)
    head_size = document.head_dim or document.hidden_size // document.num_attention_heads
    rotated = int(head_size * options.rotary_share)
    if rotated % 2:
        raise CheckpointError(
            f"{path} has a partial_rotary_factor of {options.rotary_share}, which is not an even "
            f"number of a head's {head_size} values: they are rotated in pairs."
        )
    rope, local_rope = _ropes(path, document, context_tokens, rotated)
    if windows and local_rope is not None:
        options = replace(options, local_rope=local_rope)
    dtype = (document.dtype or document.torch_dtype or "float32").removeprefix("torch.")
    if dtype not in DTYPES:
        raise CheckpointError(
            f"{path} has dtype {dtype}; this engine supports {', '.join(DTYPES)}."
        )
    return ModelConfig(
        family=family,
        vocab_tokens=document.vocab_size,
        hidden_size=document.hidden_size,
        mlp_size=document.intermediate_size,
        layers=document.num_hidden_layers,
        heads=document.num_attention_heads,
        kv_heads=document.num_key_value_heads or document.num_attention_heads,
        head_size=head_size,
        norm_epsilon=document.rms_norm_eps,
        rope=rope,
        context_tokens=_context_tokens(document, rope, context_tokens),
        tied_embeddings=document.tie_word_embeddings,
        dtype=dtype,
        eos_token_ids=read_eos_token_ids(directory),
        options=options,
    )


def read_eos_token_ids(directory: Path) -> tuple[int, ...]:
    """Return the tokens that end a text, from generation_config.json or else config.json.

    Raises:
        CheckpointError: a file is damaged, or config.json is missing.
    """
    path = directory / "generation_config.json"
    found = read_document(path, _Ends).eos_token_id if path.exists() else None
    if found is None:
        found = read_document(directory / CONFIG, _Ends).eos_token_id
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list) else (found,)


def _refuse_unknown(path: Path, document: _ModelConfigJson) -> None:
    unknown = {
        "quantization_config": document.quantization_config is not None,
    }
    for what, present in unknown.items():
        if present:
            raise CheckpointError(f"{path} requires {what}, {LACKS}.")
    positive = (
        document.vocab_size,
        document.hidden_size,
        document.num_hidden_layers,
        document.num_attention_heads,
        document.max_position_embeddings,
    )
    if min(positive) < 1 or document.num_attention_heads % (document.num_key_value_heads or 1):
        raise CheckpointError(f"{path} has inconsistent sizes.")


def _ropes(
    path: Path, document: _ModelConfigJson, context_tokens: int, rotated: int
) -> tuple[Rope, Rope | None]:
    """Return the rope of all layers, or of those without and of those with a window."""
    # transformers 5 writes rope_parameters, for Gemma 3 by kind of layer; earlier releases wrote
    # rope_theta, rope_local_base_freq for layers with a window, and optionally rope_scaling. Phi-3
    # has the original context outside of all.
    fields = dict(document.rope_parameters or document.rope_scaling or {})
    local = fields.pop("sliding_attention", None)
    fields = fields.pop("full_attention", None) or fields
    if document.rope_local_base_freq is not None:
        local = {"rope_theta": document.rope_local_base_freq}
    if document.rope_theta is not None:
        fields.setdefault("rope_theta", document.rope_theta)
    if document.original_max_position_embeddings is not None:
        fields["original_max_position_embeddings"] = document.original_max_position_embeddings
    longest = document.max_position_embeddings
    found = read_rope(path, fields, longest, context_tokens, rotated)
    if local is None:
        return found, None
    return found, read_rope(path, local, longest, context_tokens, rotated)


def _context_tokens(document: _ModelConfigJson, rope: Rope, context_tokens: int) -> int:
    """Return the longest sequence for which the model is stretched."""
    longest = document.max_position_embeddings
    if isinstance(rope, LongRope) and context_tokens <= rope.original_context_tokens:
        return min(longest, rope.original_context_tokens)  # short factors
    return longest


def digest_input(config: ModelConfig | None) -> bytes:
    """Return a configuration in the form that digests of models cover.

    Models without options leave them out: their digests, and so their stored KV, are older.
    """
    fields = msgspec.to_builtins(config)
    if config is not None and config.options == LLAMA:
        del fields["options"]
    return msgspec.json.encode(fields)
