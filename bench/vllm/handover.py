"""Part `handover`: what the KV handover adds to the time to first token of a long prompt."""

import argparse
import statistics

from bench.serving.handoff import ask_all, show

_GOAL = 0.05
PROMPT_TOKENS = 2000


async def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    """Send prompts one after the other to the vLLM engine, as bench.serving.handoff does."""
    asked = argparse.Namespace(
        engine="vllm",
        tokens=PROMPT_TOKENS,
        requests=options.prompts,
        streams=0,
        chunk=512,
        size="64M",
    )
    rows = await ask_all(asked)
    print(
        f"\nhandover: {asked.requests} prompts of {asked.tokens} tokens, one after the other; 64M "
        "Llama in bf16,\n1 prefill + 1 decode worker, a core each. What was handed over before the "
        "first token, chunk\nby chunk beside the computing, adds nothing."
    )
    show(rows)
    share = statistics.median(row["handoff"] / row["first"] for row in rows)
    best = min(row["handoff"] / row["first"] for row in rows)
    verdict = "met" if share <= _GOAL else "missed"
    print(
        f"hand-off, share of the time to the first token: median {share:.1%}, best {best:.1%}; "
        f"goal ≤ {_GOAL:.0%}: {verdict}"
    )
    return rows
