"""Part `steps`: a decode step of Baton's engine in one process, and of vLLM's own in three."""

import argparse
import statistics
from typing import Any

from bench.engine.case import Case
from bench.harness.checkpoints import random_llama
from bench.harness.table import Table
from bench.vllm.peers import async_llm, two_cores, vllm_engine

BATCHES = (1, 8, 32)
_GREEDY = [{"temperature": 0}]
_GOAL = 1.05


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time greedy decode steps of both sides in turns; the first side changes every round."""
    model = random_llama("64M")
    first, second = two_cores()
    cases = [Case(batch, 128, 32) for batch in BATCHES]
    found: dict[int, dict[str, list[list[float]]]] = {
        case.batch: {"baton": [], "vllm": []} for case in cases
    }
    own: dict[int, list[float]] = {case.batch: [] for case in cases}
    async with (
        vllm_engine(model, [second]) as ours,
        async_llm(model, [second], [first]) as theirs,
    ):
        for turn in range(options.rounds + 1):
            for case in cases:
                asked = {"case": [case.batch, case.prompt, case.steps], "turn": turn}
                for side in ("baton", "vllm")[:: 1 if turn % 2 else -1]:
                    if side == "baton":
                        with theirs.paused():
                            answer = await ours.ask({**asked, "sampling": _GREEDY})
                        seconds = answer["steps"]
                        if turn:
                            own[case.batch] += [
                                whole - core
                                for whole, core in zip(seconds, answer["core"], strict=True)
                            ]
                    else:
                        seconds = await theirs.ask({**asked, "ask": "steps"})
                    if turn:
                        found[case.batch][side].append(seconds)
    print(
        "\nsteps: decode step, ms, 64M Llama in bf16, 128-token prompts, greedy. baton: one process"
        "\non one core; vLLM: AsyncLLM, its worker on one core, the rest on the other. A round's "
        f"mean;\nthe best of {options.rounds} rounds, and the median of all their steps. own: the "
        "median of what Baton's engine\ndoes beside vLLM's EngineCore, reports and statistics."
    )
    table = Table(
        ("batch", "5d"),
        *[(name, "9.2f") for name in ("baton", "vLLM")],
        ("ratio", "6.3f"),
        *[(name, "12.2f") for name in ("baton median", "vLLM median")],
        ("ratio", "6.3f"),
        ("own", "6.2f"),
        (f"goal ≤ {_GOAL}", "<8"),
    )
    for batch, sides in found.items():
        best = {side: min(map(statistics.mean, rounds)) for side, rounds in sides.items()}
        middle = {
            side: statistics.median([step for each in rounds for step in each])
            for side, rounds in sides.items()
        }
        ratio = best["baton"] / best["vllm"]
        table.row(
            batch,
            best["baton"] * 1e3,
            best["vllm"] * 1e3,
            ratio,
            middle["baton"] * 1e3,
            middle["vllm"] * 1e3,
            middle["baton"] / middle["vllm"],
            statistics.median(own[batch]) * 1e3,
            "met" if ratio <= _GOAL else "missed",
        )
    return [{"batch": batch, "own": own[batch], **sides} for batch, sides in found.items()]
