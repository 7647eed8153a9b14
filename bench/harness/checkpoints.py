"""Random checkpoints, written once under build/bench."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from bench.harness import ROOT

VOCAB = 8192


class Shape(TypedDict):
    """Dimensions from which a model's parameters are counted; a Llama, unless it has experts."""

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_size: int
    family: NotRequired[str]
    experts: NotRequired[int]
    experts_per_token: NotRequired[int]


_NARROW: Shape = {
    "layers": 4,
    "hidden": 1024,
    "mlp": 2816,
    "heads": 16,
    "kv_heads": 8,
    "head_size": 64,
}
SIZES: dict[str, Shape] = {
    "6M": {"layers": 2, "hidden": 256, "mlp": 704, "heads": 4, "kv_heads": 2, "head_size": 64},
    "4M-A2M": {
        "layers": 2,
        "hidden": 256,
        "mlp": 128,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 64,
        "family": "qwen3_moe",
        "experts": 8,
        "experts_per_token": 2,
    },
    "64M": _NARROW,
    "154M": {**_NARROW, "layers": 12},
    "292M": {**_NARROW, "layers": 24},
    "1B": {**_NARROW, "layers": 16, "hidden": 2048, "mlp": 8192, "heads": 32},
    "1B-A300M": {
        **_NARROW,
        "layers": 18,
        "mlp": 512,
        "family": "qwen3_moe",
        "experts": 32,
        "experts_per_token": 8,
    },
    "8B": {
        "layers": 32,
        "hidden": 4096,
        "mlp": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head_size": 128,
    },
}
"""Shapes by number of parameters."""


def random_llama(size: str, vocab: int = VOCAB) -> Path:
    """Return the directory of a Llama, or of a model with experts, with random bfloat16 weights.

    Args:
        size: one of `SIZES`, whose parameter counts assume a vocabulary of `VOCAB`.
        vocab: number of tokens.
    """
    name = f"{SIZES[size].get('family', 'llama')}-{size}"
    name = name if vocab == VOCAB else f"{name}-{vocab}"
    return _written(name, vocab=vocab, dtype="bfloat16", context=8192, **SIZES[size])


def tokenizer_only(name: str) -> Path:
    """Return the directory of a model `name` with only a tokenizer, for the simulated engine."""
    return _written(name, vocab=VOCAB, layers=1)


def random_yarn(context: int, original: int = 4096) -> Path:
    """Return the directory of a tiny Llama in float32, stretched by YaRN.

    One head in each of two layers: attention to a long context takes as little time as possible.

    Args:
        context: longest sequence.
        original: the context before it was stretched.
    """
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": context / original,
        "original_max_position_embeddings": original,
    }
    shape: Shape = {
        "layers": 2,
        "hidden": 64,
        "mlp": 128,
        "heads": 1,
        "kv_heads": 1,
        "head_size": 32,
    }
    return _written(
        f"yarn-{context}", vocab=VOCAB, context=context, config={"rope_parameters": rope}, **shape
    )


def _written(name: str, config: Mapping[str, Any] = {}, **arguments: Any) -> Path:
    """Write a checkpoint; `config` replaces fields of its config.json."""
    path = ROOT / "build" / "bench" / name
    if not path.exists():
        from baton.engine.testing.random_checkpoint import write_random_checkpoint  # torch

        unfinished = path.with_name(f"{name}.{os.getpid()}")
        write_random_checkpoint(unfinished, **arguments)
        file = unfinished / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))
        unfinished.rename(path)
    return path
