"""vLLM's sampler for bench.engine.draws, if vLLM is installed in this environment."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

from baton.sampling import SamplingParams

Step = Callable[[Tensor], object]


def installed() -> bool:
    """Return whether vLLM can be imported."""
    return find_spec("vllm") is not None


def vllm_step(
    sampling: SamplingParams,
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
) -> Step:
    """Return a function that samples a token per row of logits, in place, as vLLM's worker does.

    Args:
        sampling: the parameters of every row; a row's seed is its number.
        prompts: tokens, one list per row, all equally long.
        outputs: likewise.
    """
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    rows = len(prompts)

    def column(value: float) -> Tensor:
        return torch.full((rows,), value, dtype=torch.float32)

    greedy = sampling.temperature == 0
    generators = {row: torch.Generator().manual_seed(row) for row in range(rows)}
    neutral = SamplingParams()
    metadata = SamplingMetadata(
        temperature=None if greedy else column(sampling.temperature),
        all_greedy=greedy,
        all_random=not greedy,
        top_p=column(sampling.top_p) if sampling.top_p < 1 else None,
        top_k=torch.full((rows,), sampling.top_k) if sampling.top_k else None,
        generators={} if greedy else generators,
        max_num_logprobs=None,
        no_penalties=(
            sampling.repetition_penalty == neutral.repetition_penalty
            and sampling.frequency_penalty == neutral.frequency_penalty
            and sampling.presence_penalty == neutral.presence_penalty
        ),
        prompt_token_ids=torch.tensor(prompts),
        frequency_penalties=column(sampling.frequency_penalty),
        presence_penalties=column(sampling.presence_penalty),
        repetition_penalties=column(sampling.repetition_penalty),
        output_token_ids=[list(each) for each in outputs],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )
    sampler = Sampler()
    return lambda logits: sampler(logits, metadata).sampled_token_ids.tolist()
