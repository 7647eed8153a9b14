"""Which tokens of a prompt are kept, and which are added."""

from collections.abc import Sequence

import pytest

from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from services.frontend.generation.resolution.prompts import PromptEncoder
from services.frontend.generation.turns import LoopTurns
from services.frontend.models.model import ServedModel
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.request import PromptOptions, TextPrompt, TokenPrompt
from services.frontend.text.tokenizer import TokenizerThreads

TEXT = "abcdefgh"
CONTEXT = RequestContextLimit(6)


async def encode(
    model: ServedModel, options: PromptOptions, max_tokens: int | None = None, text: str = TEXT
) -> Sequence[int]:
    threads = TokenizerThreads(1)
    try:
        encoder = PromptEncoder(threads, LoopTurns(32), "prompts", FrontendLimits())
        return (await encoder.encode(model, TextPrompt(text), CONTEXT, options, max_tokens)).ids
    finally:
        threads.close()


@pytest.mark.parametrize(
    ("kept", "first", "max_tokens", "expected"),
    [
        (3, False, None, "fgh"),
        (3, True, None, "abc"),
        (20, False, None, TEXT),
        # What leaves room for the output, which is one token where nothing says how many.
        (-1, False, None, "defgh"),
        (-1, False, 4, "gh"),
        (-1, True, 4, "ab"),
        (-1, False, 9, "h"),
    ],
)
async def test_a_prompt_is_cut_to_what_is_kept(
    model: ServedModel, kept: int, first: bool, max_tokens: int | None, expected: str
) -> None:
    ids = await encode(model, PromptOptions(truncate_tokens=kept, keep_first=first), max_tokens)
    assert model.tokenizer.decode(ids) == expected


async def test_what_is_far_too_long_is_not_tokenized_for_a_part_of_it(model: ServedModel) -> None:
    with pytest.raises(BatonError) as caught:
        await encode(model, PromptOptions(truncate_tokens=3), text=TEXT * 100)
    assert caught.value.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    with pytest.raises(BatonError) as caught:
        await encode(model, PromptOptions())
    sentence = "This model's maximum context length is 6 tokens. However, your prompt resulted in"
    assert caught.value.message.startswith(sentence)


async def test_token_ids_are_cut_as_well(model: ServedModel) -> None:
    threads = TokenizerThreads(1)
    try:
        encoder = PromptEncoder(threads, LoopTurns(32), "prompts", FrontendLimits())
        options = PromptOptions(truncate_tokens=2)
        prompt = TokenPrompt([1, 2, 3, 4])
        assert (await encoder.encode(model, prompt, CONTEXT, options)).ids == [3, 4]
    finally:
        threads.close()
