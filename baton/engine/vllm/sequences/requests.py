"""vLLM's requests, made from Baton's."""

from collections.abc import Callable
from typing import Any

from vllm.sampling_params import SamplingParams as VllmParams

from baton.engine.paged.sequence import LiveSequence
from baton.engine.vllm.sampler import draw_argument
from baton.kv.keys import block_extra, full_block_key, token_bytes
from baton.sampling import PARAMETERS, Effect, is_plainly_greedy

_SMALLEST_TOP_P = 1e-9
_UNCHANGED = [each for each in PARAMETERS if each.traits.vllm]
"""Parameters whose values are passed to vLLM unchanged."""


def block_hasher(sequence: LiveSequence, block_tokens: int) -> Callable[[Any], list[bytes]]:
    """Return the hasher of a request's blocks: it returns Baton's keys, which `sequence` keeps."""

    def name_new_blocks(request: Any) -> list[bytes]:
        keys = sequence.keys
        while (len(keys) + 1) * block_tokens <= request.num_tokens:
            at = len(keys) * block_tokens
            previous = keys[-1] if keys else sequence.request.root
            end = at + block_tokens
            extra = block_extra(sequence.request.runs, at, end)
            tokens = token_bytes(request._all_token_ids[at:end])
            keys.append(full_block_key(previous, tokens, extra))
        return keys[len(request.block_hashes) : request.num_tokens // block_tokens]

    return name_new_blocks


CLASS_BITS = 4 * 64
"""Bits below the class in a request's priority."""


def priority(sequence: LiveSequence) -> int:
    """Return a number that sorts requests by their classes and orders; of a class, streams that
    continue are first.

    vLLM has a single priority, which it compares before arrivals: ranks, lead and key, in tokens
    and microseconds, are its digits.
    """
    tier, priority_class, lead, key = sequence.request.order
    digits = [priority_class, 0, 0, 0, 0]
    if not sequence.request.output:
        digits[1:] = 1, tier, int(lead), int(key * 1e6)
    number = 0
    for digit in digits:
        number = number << 64 | min(max(0, digit), 2**64 - 1)
    return number


def takes_argmax(sequence: LiveSequence) -> bool:
    """Return whether vLLM's own argmax is the exact result, so that its step needs no addition."""
    request = sequence.request
    return (
        is_plainly_greedy(request.sampling, len(request.choices))
        and request.sampling.logprobs is None
    )


def exact_params(sequence: LiveSequence, name: str, vocab_tokens: int) -> VllmParams:
    """Return vLLM's parameters where Baton samples, or where the argmax is the exact result."""
    sampling = sequence.request.sampling
    return VllmParams(
        temperature=0,
        max_tokens=_tokens_left(sequence),
        ignore_eos=True,
        # Before min_tokens a stop token does not end the output: the engine itself handles these.
        stop_token_ids=[] if sampling.min_tokens else sorted(sequence.stops),
        detokenize=False,
        extra_args=None if takes_argmax(sequence) else draw_argument(name, sequence),
        prompt_logprobs=_prompt_logprobs(sequence, vocab_tokens),
    )


def native_params(sequence: LiveSequence, vocab_tokens: int, *, on_cpu: bool) -> VllmParams:
    """Return vLLM's parameters where vLLM samples: such an output is not continued exactly.

    On a CPU seeds are omitted: vLLM rewinds a seeded generator after each chunk of a prompt, which
    CPU generators do not support, and its engine would fail.
    """
    sampling = sequence.request.sampling
    done = len(sequence.request.output)
    left = _tokens_left(sequence)
    random = sampling.temperature > 0
    params = VllmParams(
        **{
            each.traits.vllm: getattr(sampling, each.name)
            for each in _UNCHANGED
            if random or each.traits.effect is not Effect.DRAW
        },
        temperature=sampling.temperature,
        # vLLM accepts no 0, which keeps only the most likely token.
        top_p=(sampling.top_p or _SMALLEST_TOP_P) if random else 1.0,
        # Its generator counts from the start of the request: with the position in the seed, no two
        # parts of one output share random numbers.
        seed=((sampling.seed or 0) * 1_000_003 + done) % 2**63 if random and not on_cpu else None,
        logit_bias=dict(sampling.logit_bias) or None,
        allowed_token_ids=list(sampling.allowed_token_ids or ()) or None,
        prompt_logprobs=_prompt_logprobs(sequence, vocab_tokens),
        max_tokens=left,
        min_tokens=max(0, min(sampling.min_tokens - done, left)),
        ignore_eos=True,
        stop_token_ids=sorted(sequence.stops),
        detokenize=False,
    )
    # vLLM computes these from words with its tokenizer, which it does not have here.
    params._bad_words_token_ids = [list(run) for run in sampling.bad_word_ids] or None
    return params


def _prompt_logprobs(sequence: LiveSequence, vocab_tokens: int) -> int | None:
    """Return the number of alternatives that vLLM reports per prompt token; it then ignores its
    prefix cache. None: none is reported.
    """
    asked = sequence.request.prompt_logprobs
    if asked is None or not sequence.scores_prompt:
        return None
    return min(asked, vocab_tokens)


def _tokens_left(sequence: LiveSequence) -> int:
    """Return the maximum number of tokens that vLLM may sample."""
    if sequence.request.prefill_only:
        return 1
    return sequence.length_limit - len(sequence.tokens)
