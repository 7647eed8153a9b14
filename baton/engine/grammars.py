"""Check whether an engine supports grammars, which need more than the weights."""

from collections.abc import Sequence
from pathlib import Path

from baton.structured.grammars import Grammars
from baton.structured.vocabulary import Vocabulary
from baton.telemetry.logs import get_logger

GRAMMAR = "grammar"
"""Name of the feature."""
log = get_logger(__name__)


def read_grammars(
    directory: Path | None, vocab_tokens: int, eos_token_ids: Sequence[int]
) -> Grammars | None:
    """Return the grammar compiler for a checkpoint's vocabulary; None if it is not supported."""
    if directory is None:
        return None
    try:
        return Grammars(Vocabulary.read(directory, vocab_tokens, eos_token_ids))
    except ValueError as error:
        log.info("engine.grammars.unavailable", error=str(error))
        return None
