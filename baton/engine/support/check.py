"""Reject a checkpoint that an engine does not serve, with the remedy."""

from pathlib import Path
from typing import Literal

from baton.engine.support.architectures import ARCHITECTURES, TORCH_FAMILIES, Architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document
from baton.engine.support.kv_facts import KvFacts, narrow_window, unmet_need

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
    if not facts.architectures:
        raise CheckpointError(f"{path} names no architecture: set `architectures` in it.")
    names = ", ".join(facts.architectures)
    row = _row(facts)
    if need := row.needs if row is not None else unmet_need(facts):
        raise CheckpointError(
            f"{path} has the architecture {names}, which is not supported yet: it has {need}, "
            "which neither the torch engine nor the vLLM engine supports."
        )
    window = narrow_window(facts, row or _UNKNOWN, context_tokens)
    widths = {"sliding_window": window, "attention_chunk_size": facts.attention_chunk_size}
    for name, width in widths.items():
        if width is not None and width <= 0:
            raise CheckpointError(
                f"{path} has {name} {width}, with which layers see no tokens: set it to the number "
                "of tokens that they see, or to null for the whole context."
            )
    if kind == "vllm" or (row is not None and row.torch):
        return
    known = f"the {kind} engine supports {', '.join(TORCH_FAMILIES)}"
    if row is None:
        raise CheckpointError(
            f"{path} has the architecture {names}, which is not supported yet: {known}, and "
            "docs/architectures.md lists those of the vLLM engine."
        )
    raise CheckpointError(f"{path} has the architecture {names}; {known}: {WITH_VLLM}.")


def _row(facts: KvFacts) -> Architecture | None:
    return next(
        (ARCHITECTURES[name] for name in facts.architectures if name in ARCHITECTURES), None
    )
