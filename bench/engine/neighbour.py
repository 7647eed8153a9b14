"""Decode steps that never rest, for bench.engine.shared_cores.

Questions and answers are lines of JSON. A question has the niceness that its engine's threads have
from now on; the answer has the seconds of each step since the last one. The first line says that
the engine is ready.
"""

import argparse
import json
import os
import select
import sys
import time
from pathlib import Path

from baton.engine.base import SequenceRequest
from baton.engine.events import Admitted
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings

STREAMS, PROMPT_TOKENS, LONGEST = 8, 128, 4000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    engine = create_engine(
        EngineSettings(
            model=options.model,
            native="required",
            deterministic="required",
            threads=options.threads,
            kv_bytes=1 << 30,
        )
    )
    sampling = SamplingParams(temperature=0, max_tokens=LONGEST, ignore_eos=True)
    prompt = tuple(range(300, 300 + PROMPT_TOKENS))
    begun = 0

    def begin() -> None:
        nonlocal begun
        for _ in range(STREAMS):
            engine.add(SequenceRequest(begun, b"bench", prompt, sampling))
            begun += 1

    begin()
    steps: list[float] = []
    print(json.dumps({}), flush=True)
    while True:
        began = time.perf_counter()
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.cached_tokens)
        engine.stats()
        steps.append(time.perf_counter() - began)
        if len(steps) % 512 == 0:  # their KV stays as short as that of answers
            for each in range(begun - STREAMS, begun):
                engine.close(each)
            begin()
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            for thread in Path("/proc/self/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), json.loads(line)["nice"])
            print(json.dumps({"steps": steps}), flush=True)
            steps = []


if __name__ == "__main__":
    main()
