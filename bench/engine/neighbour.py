"""Continuous decode steps, for bench.engine.shared_cores.

Requests and responses are lines of JSON. A request sets the niceness of the engine's threads; the
response has the seconds of each step since the last one. The first line reports that the engine is
ready.
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

STREAMS, PROMPT_TOKENS, OUTPUT_TOKENS = 8, 128, 512


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("kv_bytes", type=int)
    options = parser.parse_args()
    # Logs go to standard output too: move them away, as it is for responses only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = create_engine(
        EngineSettings(
            model=options.model,
            native="required",
            deterministic="required",
            threads=options.threads,
            kv_bytes=options.kv_bytes,
        )
    )
    engine.warm_up()
    sampling = SamplingParams(temperature=0, max_tokens=2 * OUTPUT_TOKENS, ignore_eos=True)
    prompt = tuple(range(300, 300 + PROMPT_TOKENS))
    begun = 0

    def begin() -> None:
        nonlocal begun
        for _ in range(STREAMS):
            engine.add(SequenceRequest(begun, b"bench", prompt, sampling))
            begun += 1

    begin()
    steps: list[float] = []
    left = OUTPUT_TOKENS
    print(json.dumps({}), file=answers, flush=True)
    while True:
        began = time.perf_counter()
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.cached_tokens)
        engine.stats()
        steps.append(time.perf_counter() - began)
        left -= 1
        if not left:  # their KV stays as short as that of outputs
            left = OUTPUT_TOKENS
            for each in range(begun - STREAMS, begun):
                engine.close(each)
            begin()
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            nice = json.loads(line)["nice"]
            for thread in Path("/proc/self/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
            print(json.dumps({"steps": steps}), file=answers, flush=True)
            steps = []


if __name__ == "__main__":
    main()
