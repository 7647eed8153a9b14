"""Traces that tests create: conversations whose prompts grow with each turn."""

import json
import random
from pathlib import Path
from typing import Any

BLOCK_TOKENS = 512


def conversation_lines(requests: int, seed: int = 1, per_second: float = 3.4) -> list[bytes]:
    """Return the lines of a trace: a shared system prompt, then the turns of each conversation.

    Times are multiples of 3 seconds, as in Mooncake's traces.
    """
    draw = random.Random(seed)
    chains: list[list[int]] = []
    lines: list[dict[str, Any]] = []
    used = 1
    for number in range(requests):
        if len(chains) < 20 or draw.random() < 0.4:
            chains = [*chains, [0]][-80:]
            chain = chains[-1]
        else:
            chain = draw.choice(chains)
        more = draw.randint(4, 14) if len(chain) > 1 else draw.randint(4, 30)
        chain += range(used, used + more)
        used += more
        lines.append(
            {
                "timestamp": int(number / per_second / 3) * 3000,
                "input_length": len(chain) * BLOCK_TOKENS - draw.randrange(BLOCK_TOKENS),
                "output_length": draw.randint(1, 600),
                "hash_ids": list(chain),
            }
        )
    return [json.dumps(line).encode() + b"\n" for line in lines]


def write_conversations(path: Path, requests: int, seed: int = 1) -> Path:
    """Write such a trace to a file and return its path."""
    path.write_bytes(b"".join(conversation_lines(requests, seed)))
    return path
