"""Baton's VllmEngine in a separate process, which answers each line of JSON with another.

Argument: JSON with the options of `peers.vllm_engine`. A request is a `Case`, a turn, and the
sampling of its rows. The response has `steps`, the seconds of each step, and `core`, those of
vLLM's EngineCore in each.
"""

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, asked["cores"])
    # vLLM prints to standard output: redirect that to standard error, except responses.
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
    # There is nothing to save, and libraries' threads may keep the interpreter from ending.
    os._exit(0)


def time_core() -> list[float]:
    """Return a list in which the seconds of each step of `VllmCore` are recorded from now on.

    The rest of an engine's time in this process is Baton's own.
    """
    # Only now, as an engine must set the environment before vLLM is imported.
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
