"""Cases of bench.engine.throughput. Imports only the standard library, as peers use it too."""

import random
import time
from dataclasses import dataclass

VOCAB = 8192


@dataclass(frozen=True)
class Case:
    """A number of prompts at once. Times `steps` decode steps, or the prompts if `steps` is 0."""

    batch: int
    prompt: int
    steps: int

    @property
    def name(self) -> str:
        kind = "decode" if self.steps else "prefill"
        return f"{kind} {self.batch} x {self.prompt}"

    def prompts(self, turn: int) -> list[list[int]]:
        """Return distinct random prompts; decode cases repeat them every turn, as KV is cached."""
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
"""Steps after the last prompt that are not timed."""
CHUNK_TOKENS = 2048
"""Prompt tokens per step, in every engine."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""Meaning of seconds. If other programs use the machine, only CPU time of one thread is
reliable."""
