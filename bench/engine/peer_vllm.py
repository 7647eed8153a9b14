"""vLLM for bench.engine.throughput: cases on standard input, seconds on standard output.

Requires vLLM. Each case and each response is one line of JSON. The first line reports that
the model is loaded, and the version of vLLM.
"""

import json
import os
import sys
from typing import Any

from bench.engine.case import CHUNK_TOKENS, CLOCKS, WARM_UP_STEPS, Case

GPU_SHARE = 0.4
"""Share of a GPU's memory."""


def main() -> None:
    # The libraries print to standard output too: redirect that to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import vllm

    model, clock, device = sys.argv[1:4]
    options: dict[str, Any] = {"enforce_eager": True}
    if device != "cpu":
        # With CUDA graphs, its default; Baton's engine has memory of the same GPU.
        options = {"gpu_memory_utilization": GPU_SHARE}
    llm = vllm.LLM(
        model=model,
        dtype="bfloat16",
        max_model_len=4096,
        max_num_seqs=64,
        max_num_batched_tokens=CHUNK_TOKENS,
        enable_prefix_caching=True,
        skip_tokenizer_init=True,
        seed=0,
        **options,
    )

    def say(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    say(version=vllm.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        case = Case(*asked["case"])
        say(seconds=run(llm, case, asked["turn"], clock))


def run(llm: Any, case: Case, turn: int, clock: str) -> float:
    """Return the seconds of the timed part."""
    now = CLOCKS[clock]
    import vllm

    engine = llm.llm_engine
    params = vllm.SamplingParams(
        max_tokens=case.steps + 64 if case.steps else 1,
        temperature=0,
        ignore_eos=True,
        detokenize=False,
    )
    names = [f"{turn}-{case.name}-{i}" for i in range(case.batch)]
    began = now()
    for name, prompt in zip(names, case.prompts(turn), strict=True):
        engine.add_request(name, {"prompt_token_ids": prompt}, params)
    drawn: dict[str, int] = {}

    def step() -> None:
        for output in engine.step():
            drawn[output.request_id] = len(output.outputs[0].token_ids)

    while len(drawn) < case.batch:
        step()
    if not case.steps:
        seconds = now() - began
        while engine.has_unfinished_requests():
            step()
        return seconds
    for _ in range(WARM_UP_STEPS):
        step()
    before = sum(drawn.values())
    began = now()
    while sum(drawn.values()) - before < case.steps * case.batch:
        step()
    seconds = now() - began
    engine.abort_request(names)
    while engine.has_unfinished_requests():
        step()
    return seconds * case.steps * case.batch / (sum(drawn.values()) - before)


if __name__ == "__main__":
    main()
