"""Facts in config.json about the KV that a model's layers keep."""

from pathlib import Path
from typing import Any

import msgspec

from baton.engine.support.architectures import (
    ARCHITECTURES,
    ENCODER_DECODER,
    LATENT,
    MULTIMODAL,
    NO_TEXT,
    STATE,
    Architecture,
    Windows,
)
from baton.engine.support.documents import CONFIG, read_document

_DEFAULT_MAX_WINDOW_LAYERS = 28
"""Default of transformers' Qwen2Config and Qwen3Config."""
_ATTENTION_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
_STATE_TYPES = ("linear_attention", "mamba", "mamba2", "recurrent", "conv")
_WINDOW_TYPES = ("sliding_attention", "chunked_attention")
_ENCODERS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")


class KvFacts(msgspec.Struct):
    """Fields of config.json that determine the kind of KV."""

    architectures: list[str] = []
    max_position_embeddings: int | None = None
    num_hidden_layers: int | None = None
    sliding_window: int | msgspec.UnsetType | None = msgspec.UNSET
    sliding_window_pattern: int | None = None
    use_sliding_window: bool | None = None
    attention_chunk_size: int | None = None
    max_window_layers: int | None = None
    layer_types: list[str] | None = None
    kv_lora_rank: int | None = None
    is_encoder_decoder: bool = False
    vision_config: dict[str, Any] | None = None
    audio_config: dict[str, Any] | None = None


def narrow_window(facts: KvFacts, row: Architecture, context_tokens: int) -> int | None:
    """Return the number of tokens that windowed layers attend to, if less than the context.

    Args:
        facts: of the checkpoint.
        row: of its architecture.
        context_tokens: the longest sequence; 0: the checkpoint's own.

    Returns:
        None: all layers attend to the whole context. A window as wide as that is full attention.
    """
    given = facts.sliding_window
    width = row.default_window if given is msgspec.UNSET else given
    if width is None or facts.use_sliding_window is False:
        return None
    if row.windows is not Windows.GIVEN and not facts.use_sliding_window:
        return None
    if facts.layer_types is not None:
        windowed = any(kind in _WINDOW_TYPES for kind in facts.layer_types)
    elif row.windows is Windows.UPPER_LAYERS and facts.num_hidden_layers is not None:
        first = facts.max_window_layers
        windowed = facts.num_hidden_layers > (
            _DEFAULT_MAX_WINDOW_LAYERS if first is None else first
        )
    else:
        windowed = True
    context = context_tokens or facts.max_position_embeddings
    return width if windowed and (context is None or width < context) else None


def layer_windows(facts: KvFacts, layers: int, context_tokens: int) -> tuple[int, ...]:
    """Return the number of last tokens that each layer attends to, 0: all.

    Args:
        facts: of a checkpoint whose architecture is in the table.
        layers: its number of layers.
        context_tokens: the longest sequence; 0: the checkpoint's own.

    Returns:
        Empty: all layers attend to the whole context.
    """
    row = next(ARCHITECTURES[name] for name in facts.architectures if name in ARCHITECTURES)
    width = narrow_window(facts, row, context_tokens)
    if width is None:
        return ()
    if facts.layer_types is not None:
        windowed = [kind in _WINDOW_TYPES for kind in facts.layer_types]
    elif row.windows is Windows.UPPER_LAYERS:
        first = facts.max_window_layers
        first = _DEFAULT_MAX_WINDOW_LAYERS if first is None else first
        windowed = [layer >= first for layer in range(layers)]
    else:
        every = facts.sliding_window_pattern or row.full_every
        windowed = [not every or (layer + 1) % every != 0 for layer in range(layers)]
    return tuple(width if has else 0 for has in windowed[:layers])


def sees(directory: Path) -> bool:
    """Return whether a checkpoint has a part for pictures, by its config.json.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    return read_document(directory / CONFIG, KvFacts).vision_config is not None


def unmet_need(facts: KvFacts) -> str:
    """Return the feature that a model needs and no engine has, if its architecture is not in the
    table.

    Empty: config.json shows none.
    """
    others = sorted(set(facts.layer_types or ()) - {*_ATTENTION_TYPES, *_STATE_TYPES})
    needs = {
        ENCODER_DECODER: facts.is_encoder_decoder,
        MULTIMODAL: facts.vision_config is not None or facts.audio_config is not None,
        LATENT: facts.kv_lora_rank is not None,
        STATE: any(kind in _STATE_TYPES for kind in facts.layer_types or ()),
        f"layers of another kind ({', '.join(others)})": bool(others),
        NO_TEXT: bool(facts.architectures)
        and all(name.endswith(_ENCODERS) for name in facts.architectures),
    }
    return next((need for need, present in needs.items() if present), "")
