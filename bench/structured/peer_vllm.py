"""vLLM for bench.structured.steps: requests on standard input, milliseconds on standard output.

Requires `make vllm`. Arguments: the model, and JSON of the schemas. A request says whether streams
have grammars; the response is the median milliseconds of a decode step. The first line has the
version of vLLM.
"""

import json
import os
import statistics
import sys
import time
from typing import Any

from bench.structured.load import BATCH, MAX_TOKENS, STEPS, WARM_UP_STEPS, prompt


def main() -> None:
    # The libraries print to standard output too: redirect that to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import vllm

    model, schemas = sys.argv[1], json.loads(sys.argv[2])
    llm = vllm.LLM(
        model=model,
        dtype="bfloat16",
        max_model_len=4096,
        max_num_seqs=2 * BATCH,
        enforce_eager=True,
        enable_prefix_caching=True,
        structured_outputs_config={"backend": "guidance"},
        seed=0,
    )
    print(json.dumps({"version": vllm.__version__}), file=answers, flush=True)
    for turn, line in enumerate(sys.stdin):
        asked = json.loads(line)
        found = step_ms(llm.llm_engine, schemas if asked["guided"] else [], turn)
        print(json.dumps({"ms": found}), file=answers, flush=True)


def step_ms(engine: Any, schemas: list[Any], turn: int) -> float:
    """Return the median milliseconds of a decode step of `BATCH` streams.

    Args:
        engine: vLLM's.
        schemas: schemas of the streams, in turns; empty: none.
        turn: part of their names.
    """
    import vllm
    from vllm.sampling_params import StructuredOutputsParams

    names = [f"{turn}-{number}" for number in range(BATCH)]
    for number, name in enumerate(names):
        grammar = None
        if schemas:
            grammar = StructuredOutputsParams(json=json.dumps(schemas[number % len(schemas)]))
        params = vllm.SamplingParams(
            temperature=1.0,
            seed=number,
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
            detokenize=False,
            structured_outputs=grammar,
        )
        engine.add_request(name, {"prompt_token_ids": list(prompt(number))}, params)
    drawn: dict[str, int] = {}

    def step() -> None:
        for output in engine.step():
            if output.finished:
                raise SystemExit(f"stream {output.request_id} ended")
            drawn[output.request_id] = len(output.outputs[0].token_ids)

    while len(drawn) < BATCH:
        step()
    for _ in range(WARM_UP_STEPS):
        step()
    seconds = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    engine.abort_request(names)
    while engine.has_unfinished_requests():
        engine.step()
    return statistics.median(seconds) * 1e3


if __name__ == "__main__":
    main()
