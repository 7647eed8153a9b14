"""Baton's VllmEngine in a process of its own, which answers a line of JSON with another.

Argument: JSON of what `peers.vllm_engine` is asked for. A question is a `Case`, a turn, and the
sampling of its rows. The answer: `steps`, the seconds of each step, and `core`, those that vLLM's
EngineCore took of each.
"""

import json
import os
import sys
import time
from typing import Any


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

    def say(answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    engine = Ours(EngineSettings(kind="vllm", threads=1, **asked["settings"]), "wall")
    core = time_core()
    say({"start_seconds": engine.start_seconds})
    for line in sys.stdin:
        question = json.loads(line)
        sampling = [SamplingParams(**each) for each in question["sampling"]]
        core.clear()
        seconds = engine.timed(Case(*question["case"]), question["turn"], sampling)
        say({"steps": seconds, "core": core[-len(seconds) :]})
    # Nothing is to be saved, and libraries' threads may keep the interpreter from ending.
    os._exit(0)


def time_core() -> list[float]:
    """Return where the seconds of each step of `VllmCore` are noted from now on.

    What an engine of this process does beside them is Baton's own.
    """
    # Only now: an engine must set the environment before vLLM is imported.
    from baton.engine.vllm.core import VllmCore

    step = VllmCore.step
    seconds: list[float] = []

    def timed(core: VllmCore) -> list[Any]:
        began = time.perf_counter()
        outputs = step(core)
        seconds.append(time.perf_counter() - began)
        return outputs

    VllmCore.step = timed  # type: ignore[method-assign, assignment]  # timed from outside
    return seconds


if __name__ == "__main__":
    main()
