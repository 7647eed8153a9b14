"""What bench.engine.throughput asks an engine. Imports only the standard library: peers use it."""

import random
import time
from dataclasses import dataclass

VOCAB = 8192


@dataclass(frozen=True)
class Case:
    """So many prompts at once; `steps` decode steps are timed, or the prompts if there are none."""

    batch: int
    prompt: int
    steps: int

    @property
    def name(self) -> str:
        kind = "decode" if self.steps else "prefill"
        return f"{kind} {self.batch} x {self.prompt}"

    def prompts(self, turn: int) -> list[list[int]]:
        """Distinct random prompts. Decode cases get the same every turn: their KV is cached."""
        turn = 0 if self.steps else turn
        draw = random.Random(f"{self.name} {turn}")
        return [[draw.randrange(300, VOCAB) for _ in range(self.prompt)] for _ in range(self.batch)]


CASES = (
    Case(1, 512, 48),
    Case(8, 512, 32),
    Case(32, 512, 16),
    Case(1, 512, 0),
    Case(1, 2048, 0),
    Case(8, 1024, 0),
)
WARM_UP_STEPS = 2
"""Steps after the last prompt was read that are not timed."""
CHUNK_TOKENS = 2048
"""Prompt tokens per step, in every engine."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""What seconds are: where others use the machine too, CPU time of one thread can be trusted."""
