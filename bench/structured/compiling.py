"""Compile the hostile grammars repeatedly, for bench.structured.hostile.

Compiles as the threads of a worker do. Takes the directory of a checkpoint, reports when it starts,
and runs until it is stopped.
"""

import contextlib
import sys
from pathlib import Path

from baton.engine.checkpoint.model_config import read_config
from baton.engine.grammars import read_grammars
from baton.host.priority import BEHIND_STEPS, add_niceness
from baton.process.allocator import keep_freed_memory
from baton.request.grammar import Grammar
from baton.structured.compile import compile_grammar
from bench.structured.grammars import HOSTILE


def main() -> None:
    keep_freed_memory()
    add_niceness(BEHIND_STEPS)
    model = Path(sys.argv[1])
    config = read_config(model)
    grammars = read_grammars(model, config.vocab_tokens, config.eos_token_ids)
    assert grammars is not None
    print("ready", flush=True)
    while True:
        for kind, text in HOSTILE:
            with contextlib.suppress(ValueError):  # rejected
                compile_grammar(grammars.vocabulary, Grammar.of(kind, text))


if __name__ == "__main__":
    main()
