"""Part `draws`: what sampling adds to a step of the engine, by Baton's exact draws and by vLLM."""

import argparse
import statistics
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
    """Time decode steps whose rows are all of one kind, in turns with exact draws and without."""
    _, core = two_cores()
    print(
        f"\ndraws: decode step, ms, {options.draws_size} shape in bf16 on one core, "
        f"{_PROMPT_TOKENS}-token prompts; best of {options.rounds} rounds. exact: Baton's\ndraws "
        "in the step; vLLM: exact_draws off, so that vLLM samples; added: over the same engine's "
        "greedy\nstep. Random weights make flat logits, the slowest case of top-p. "
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
            for batch in BATCHES:
                case = [batch, _PROMPT_TOKENS, 8]
                greedy: dict[str, float] = {}
                for kind, sampling in KINDS.items():
                    rounds: dict[str, list[float]] = {"exact": [], "native": []}
                    rows = [{**sampling, "seed": row} for row in range(batch)]
                    asked = {"case": case, "turn": 0, "sampling": rows}
                    for turn in range(options.rounds + 1):
                        sides = [("exact", exact), ("native", native)]
                        for side, engine in sides[:: 1 if turn % 2 else -1]:
                            answer = await engine.ask(asked)
                            if turn:
                                rounds[side].append(statistics.mean(answer["steps"]))
                    best = {side: min(means) for side, means in rounds.items()}
                    if kind == "greedy":
                        greedy = best
                    results.append({"vocabulary": vocab, "batch": batch, "kind": kind, **rounds})
                    table.row(
                        str(vocab),
                        batch,
                        kind,
                        best["exact"] * 1e3,
                        best["exact"] / greedy["exact"] - 1,
                        best["native"] * 1e3,
                        best["native"] / greedy["native"] - 1,
                        best["exact"] / best["native"],
                    )
    return results
