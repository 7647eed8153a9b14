"""Use what workers use of vLLM, in a process of its own: `python -m …vllm_features MODEL ADAPTER`.

Prints a line of JSON per engine: its output for every request.
"""

import gc
import json
import os
import sys
from typing import Any

ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
PROMPT = "one two three one two three one two"
REGEX = "[0-9]{4}"
TOKENS = 8


def main(model: str, adapter: str) -> None:
    # vLLM talks on standard output: that becomes standard error, and the answers keep their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT)
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    def params(regex: str | None = None) -> SamplingParams:
        # Not shared: an engine notes its grammar backend in them.
        structure = StructuredOutputsParams(regex=regex) if regex else None
        return SamplingParams(temperature=0, max_tokens=TOKENS, structured_outputs=structure)

    def ask(*requests: tuple[SamplingParams, Any], **settings: Any) -> None:
        llm = LLM(model, dtype="float32", max_model_len=256, enforce_eager=True, **settings)
        each, adapters = zip(*requests, strict=True)
        outputs = llm.generate(
            [PROMPT] * len(requests), list(each), lora_request=list(adapters), use_tqdm=False
        )
        print(json.dumps([each.outputs[0].text for each in outputs]), file=answers, flush=True)
        llm.llm_engine.engine_core.shutdown()
        gc.collect()

    ask(
        (params(), None),
        (params(), LoRARequest("adapter", 1, adapter)),
        (params(REGEX), None),
        enable_lora=True,
        # On CPUs, requests without an adapter in a batch with some get that of the last slot: one
        # slot stays empty.
        max_loras=2,
        structured_outputs_config={"backend": "xgrammar"},
    )
    ask(
        (params(), None),
        (params(REGEX), None),
        speculative_config={"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
        structured_outputs_config={"backend": "guidance"},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
