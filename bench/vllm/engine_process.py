"""Baton's VllmEngine in a process of its own, which answers a line of JSON with another.

Argument: JSON of what `peers.vllm_engine` is asked for. A question is a `Case`, a turn, and the
sampling of its rows; the answer is the seconds of each step.
"""

import json
import os
import sys


def main() -> None:
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, asked["cores"])
    # vLLM talks on standard output: that becomes standard error, and the answers keep their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from baton.sampling import SamplingParams
    from baton.settings import EngineSettings
    from bench.engine.case import Case
    from bench.engine.engines import Ours

    engine = Ours(EngineSettings(kind="vllm", threads=1, **asked["settings"]), "wall")
    print(json.dumps({"start_seconds": engine.start_seconds}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        sampling = [SamplingParams(**each) for each in question["sampling"]]
        seconds = engine.timed(Case(*question["case"]), question["turn"], sampling)
        print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
