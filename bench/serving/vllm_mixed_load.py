"""The load of bench.serving.disaggregation on vLLM's own engine.

Arguments: the model's directory, prompt tokens per step. For each line of JSON on standard input, a
load, it answers one: the requests that were made. The engine is called in its process (no HTTP),
which is the best case for it.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from itertools import count

from bench.serving.mixed_load import MixedLoad, run, to_json


async def main() -> None:
    model, chunk_tokens = sys.argv[1:]
    # vLLM talks on standard output: that becomes standard error, and the answers keep their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm import SamplingParams, TokensPrompt
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=model,
            dtype="bfloat16",
            max_model_len=4096,
            max_num_seqs=64,
            max_num_batched_tokens=int(chunk_tokens),
            enable_chunked_prefill=True,
            enforce_eager=True,
            skip_tokenizer_init=True,
            disable_log_stats=True,
        )
    )
    ids = count(1)

    async def generate(prompt: list[int], output: int) -> AsyncGenerator[int, None]:
        sampling = SamplingParams(
            temperature=0,
            max_tokens=output,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        stream = engine.generate(TokensPrompt(prompt_token_ids=prompt), sampling, str(next(ids)))
        async for event in stream:
            if event.outputs and event.outputs[0].token_ids:
                yield len(event.outputs[0].token_ids)

    try:
        async for _ in generate(list(range(256, 512)), 4):
            pass
        while line := await asyncio.to_thread(sys.stdin.readline):
            requests = await run(generate, MixedLoad(**json.loads(line)))
            print(json.dumps(to_json(requests)), file=answers, flush=True)
    finally:
        engine.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
