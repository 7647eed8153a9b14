"""Part `draws`: cost of sampling per step, by Baton's exact sampling and by vLLM."""

import argparse
import math
from typing import Any

from bench.harness.checkpoints import random_llama
from bench.harness.table import Table
from bench.vllm.peers import two_cores, vllm_engine
from bench.vllm.steps import BATCHES

KINDS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0},
    "temperature": {"temperature": 0.8, "seed": 1},
    "top-p": {"temperature": 0.8, "top_p": 0.9, "seed": 1},
}
_VOCABULARIES = (32_000, 131_072)
_PROMPT_TOKENS = 64


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time decode steps with rows of one kind, with and without exact sampling in turns."""
    _, core = two_cores()
    print(
        f"\ndraws: decode step, ms, {options.draws_size} shape in bf16 on one core, "
        f"{_PROMPT_TOKENS}-token prompts; the fastest of {options.rounds} rounds' steps.\nexact: "
        "Baton's draws in the step; vLLM: exact_draws off, so that vLLM samples; added: over the "
        "same engine's greedy\nstep. Random weights make flat logits, the slowest case of top-p. "
        "Draws alone, also on\npeaked logits: python -m bench.engine.draws"
    )
    table = Table(
        ("vocabulary", "<10"),
        ("rows", "4d"),
        ("kind", "<11"),
        ("exact", "8.2f"),
        ("added", "7.1%"),
        ("vLLM", "8.2f"),
        ("added", "7.1%"),
        ("ratio", "6.2f"),
    )
    results: list[dict[str, Any]] = []
    for vocab in _VOCABULARIES:
        model = random_llama(options.draws_size, vocab)
        async with (
            vllm_engine(model, [core]) as exact,
            vllm_engine(model, [core], exact_draws=False) as native,
        ):
            engines = [("exact", exact), ("native", native)]
            for batch in BATCHES:
                case = [batch, _PROMPT_TOKENS, 8]
                best = {kind: {"exact": math.inf, "native": math.inf} for kind in KINDS}
                for turn in range(options.rounds + 1):
                    for kind, sampling in KINDS.items():
                        rows = [{**sampling, "seed": row} for row in range(batch)]
                        asked = {"case": case, "turn": 0, "sampling": rows}
                        for side, engine in engines[:: 1 if turn % 2 else -1]:
                            answer = await engine.ask(asked)
                            if turn:
                                best[kind][side] = min(best[kind][side], *answer["steps"])
                for kind, seconds in best.items():
                    results.append({"vocabulary": vocab, "batch": batch, "kind": kind, **seconds})
                    table.row(
                        str(vocab),
                        batch,
                        kind,
                        seconds["exact"] * 1e3,
                        seconds["exact"] / best["greedy"]["exact"] - 1,
                        seconds["native"] * 1e3,
                        seconds["native"] / best["greedy"]["native"] - 1,
                        seconds["exact"] / seconds["native"],
                    )
    return results
