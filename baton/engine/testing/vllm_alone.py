"""Reference outputs of vLLM without Baton."""

import base64
import io
from typing import Any

KV_BYTES = 128 * 1024 * 1024


def _image(data: str) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(data)))


def stock(asked: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """Send prompts to `LLM` one after the other: others in a batch may change rounding.

    With states it needs `prefix_cache` to round alike: chunks of a prompt then end on blocks.

    Args:
        asked: `model`, `prompts` and `output_tokens`; `dtype` unless it is float32;
            `prefix_cache` unless it is off; `pictures` if there are any: for each prompt its own,
            in base64.
        options: of `LLM`, in addition.

    Returns:
        By prompt: `tokens`, their `logprobs`, and `gaps`: by which each is ahead of the next best.
    """
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=asked["model"],
        dtype=asked.get("dtype", "float32"),
        skip_tokenizer_init="pictures" not in asked,
        enforce_eager=True,
        block_size=32,
        kv_cache_memory_bytes=KV_BYTES,
        max_num_batched_tokens=512,
        enable_prefix_caching=asked.get("prefix_cache", False),
        disable_log_stats=True,
        **options,
    )
    params = SamplingParams(
        temperature=0,
        max_tokens=asked["output_tokens"],
        ignore_eos=True,
        logprobs=2,
        detokenize=False,
    )
    answers = []
    pictures = asked.get("pictures") or [[]] * len(asked["prompts"])
    for prompt, own in zip(asked["prompts"], pictures, strict=True):
        inputs: dict[str, Any] = {"prompt_token_ids": prompt}
        if own:
            inputs["multi_modal_data"] = {"image": [_image(each) for each in own]}
        (output,) = llm.generate([inputs], params, use_tqdm=False)
        completion = output.outputs[0]
        best = [
            sorted((each.logprob for each in entry.values()), reverse=True)
            for entry in completion.logprobs
        ]
        answers.append(
            {
                "tokens": list(completion.token_ids),
                "logprobs": [first for first, *_ in best],
                "gaps": [first - second for first, second, *_ in best],
            }
        )
    llm.llm_engine.engine_core.shutdown()
    return answers
