"""Reject a checkpoint that an engine does not serve, with the remedy."""

from pathlib import Path
from typing import Literal

from baton.engine.support.architectures import ARCHITECTURES, TORCH_FAMILIES, Architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document
from baton.engine.support.kv_facts import KvFacts, narrow_window, unmet_need, window_width

EngineKind = Literal["torch", "sim", "vllm"]

WITH_VLLM = "serve it with --engine vllm (BATON_ENGINE_KIND=vllm; `make vllm` installs vLLM)"
_UNKNOWN = Architecture()


def check_architecture(directory: Path, kind: EngineKind, context_tokens: int) -> None:
    """Check that an engine serves the architecture that a checkpoint's config.json names.

    An architecture that is not in the table is left to vLLM, which loads it or reports the reason;
    its KV is checked afterwards.

    Args:
        directory: of the checkpoint.
        kind: of the engine; the simulator supports the same as the torch engine.
        context_tokens: the longest sequence; 0: the checkpoint's own.

    Raises:
        CheckpointError: the engine does not serve it; the text names one that does, if there is
            any.
    """
    path = directory / CONFIG
    facts = read_document(path, KvFacts)
    names = ", ".join(facts.architectures) or "nothing"
    row = _row(facts)
    if need := row.needs if row is not None else unmet_need(facts):
        raise CheckpointError(
            f"{path} has the architecture {names}, which is not supported yet: it has {need}, "
            "which neither the torch engine nor the vLLM engine supports."
        )
    _check_windows(path, facts, row or _UNKNOWN, context_tokens)
    if kind == "vllm" or (row is not None and row.torch):
        return
    known = f"the {kind} engine supports {', '.join(TORCH_FAMILIES)}"
    if row is None:
        raise CheckpointError(
            f"{path} has the architecture {names}, which is not supported yet: {known}, and "
            "docs/vllm.md lists the architectures of the vLLM engine."
        )
    raise CheckpointError(f"{path} has the architecture {names}; {known}: {WITH_VLLM}.")


def covers_windows(directory: Path, context_tokens: int) -> bool:
    """Return whether config.json names a sliding window, and every layer attends to the whole
    context.

    Raises:
        CheckpointError: config.json is missing, or damaged.
    """
    facts = read_document(directory / CONFIG, KvFacts)
    row = _row(facts) or _UNKNOWN
    return bool(window_width(facts, row)) and narrow_window(facts, row, context_tokens) is None


def _row(facts: KvFacts) -> Architecture | None:
    return next(
        (ARCHITECTURES[name] for name in facts.architectures if name in ARCHITECTURES), None
    )


def _check_windows(path: Path, facts: KvFacts, row: Architecture, context_tokens: int) -> None:
    """Check that no layer attends to less than the context.

    Raises:
        CheckpointError: some do; the text names the context with which none would.
    """
    window = narrow_window(facts, row, context_tokens)
    if window is None:
        return
    context = context_tokens or facts.max_position_embeddings
    engine = "" if row.torch else " with --engine vllm"
    raise CheckpointError(
        f"{path} requires sliding window attention: layers see the last {window} tokens of a "
        f"context of {context or 'any length'}, which is not supported yet by either engine. Set "
        f"BATON_ENGINE_CONTEXT_TOKENS to {window} or less to serve it{engine}, with contexts that "
        "the window covers."
    )
