"""A conversation that is too long is encoded without its oldest turns, by its real tokens."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.settings import FrontendLimits
from services.frontend.generation.resolution.prompts import PromptEncoder
from services.frontend.generation.resolution.truncation import TurnTruncation
from services.frontend.generation.turns import LoopTurns
from services.frontend.models.model import ServedModel
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.request import ChatPrompt, EncodedPrompt, PromptOptions
from services.frontend.text.chat_template import ChatMessage, ChatTemplate
from services.frontend.text.message_sizes import MessageSizes
from services.frontend.text.tokenizer import Tokenizer, TokenizerThreads
from tests.unit.frontend.conftest import byte_level

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]"
    "{% if loop.last and m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }};{% endfor %}[assistant]"
)
CONTEXT = 800
SYSTEM = ChatMessage("system", "Be kind")


@pytest.fixture
def model() -> ServedModel:
    tokenizer = Tokenizer(byte_level(), ChatTemplate(TEMPLATE))
    card = cluster_pb2.ModelCard(name="m", context_tokens=CONTEXT, vocab_tokens=400)
    return ServedModel("m", tokenizer, (card,))


@pytest.fixture
async def truncation() -> AsyncIterator[TurnTruncation]:
    threads = TokenizerThreads(4)
    encoder = PromptEncoder(threads, LoopTurns(32), "prompts", FrontendLimits())
    yield TurnTruncation(encoder, threads)
    threads.close()


def history(turns: int, characters: int = 20) -> list[ChatMessage]:
    messages = [SYSTEM]
    for at in range(turns):
        messages.append(ChatMessage("user", f"{at:03}" + "u" * characters))
        messages.append(ChatMessage("assistant", f"{at:03}" + "a" * characters))
    return [*messages, ChatMessage("user", "last")]


async def encoded(
    truncation: TurnTruncation,
    model: ServedModel,
    messages: list[ChatMessage],
    max_tokens: int | None = 100,
    options: PromptOptions = PromptOptions(drop_turns=True),  # noqa: B008 - it is frozen
) -> EncodedPrompt:
    context = RequestContextLimit(CONTEXT)
    return await truncation.encode(model, ChatPrompt(messages), context, options, max_tokens)


async def test_what_fits_is_whole(truncation: TurnTruncation, model: ServedModel) -> None:
    messages = history(7)
    found = await encoded(truncation, model, messages)
    assert found.dropped is None
    assert found.ids == model.tokenizer.encode_chat(messages)


async def test_each_longer_history_keeps_the_cut(
    truncation: TurnTruncation, model: ServedModel
) -> None:
    starts, texts = [], []
    for turns in range(60):
        found = await encoded(truncation, model, history(turns))
        assert len(found.ids) <= CONTEXT - 100
        texts.append(model.tokenizer.decode(found.ids))
        assert texts[-1].startswith("[system]Be kind;[user]")
        assert texts[-1].endswith("[user]last;[assistant]")
        starts.append(found.dropped.cut.start if found.dropped else 0)
        if found.dropped is not None:
            left_out = model.tokenizer.encode_chat(history(turns))
            told = len(left_out) - len(found.ids)
            assert abs(found.dropped.tokens - told) <= told / 20
    assert starts == sorted(starts)
    assert 8 < len(set(starts)) < 20
    same = [
        after.startswith(before.removesuffix("[user]last;[assistant]"))
        for before, after in pairwise(texts)
    ]
    assert sum(same) == len(texts) - len(set(starts))


async def test_a_cut_that_was_remembered_stays(
    truncation: TurnTruncation, model: ServedModel
) -> None:
    cut = (await encoded(truncation, model, history(40))).dropped
    assert cut is not None
    options = PromptOptions(drop_turns=True, cut=cut.cut)
    assert (await encoded(truncation, model, history(40), options=options)).dropped == cut
    # It stays where it is if there is more space, too.
    short = await encoded(truncation, model, history(40), 10, options)
    assert short.dropped == cut


async def test_an_output_without_a_length_has_an_eighth_of_the_context(
    truncation: TurnTruncation, model: ServedModel
) -> None:
    found = await encoded(truncation, model, history(60), None)
    assert CONTEXT // 2 < len(found.ids) <= CONTEXT * 7 // 8


async def test_a_last_turn_that_does_not_fit_is_refused(
    truncation: TurnTruncation, model: ServedModel
) -> None:
    with pytest.raises(BatonError) as caught:
        await encoded(truncation, model, [*history(3), ChatMessage("user", "x" * 9000)])
    assert caught.value.reason is Reason.CONTEXT_LENGTH_EXCEEDED


async def test_without_truncation_nothing_is_left_out(
    truncation: TurnTruncation, model: ServedModel
) -> None:
    with pytest.raises(BatonError) as caught:
        await encoded(truncation, model, history(60), options=PromptOptions())
    assert caught.value.reason is Reason.CONTEXT_LENGTH_EXCEEDED


def test_sizes_are_those_of_the_template(model: ServedModel) -> None:
    sizes, tokenizer = MessageSizes(model.tokenizer), model.tokenizer
    messages = history(3)
    counted = sum(map(sizes.of, messages[1:])) + sizes.fixed([SYSTEM], ChatPrompt([]).options)
    assert abs(counted - len(tokenizer.encode_chat(messages))) <= len(messages)
    thinking = ChatMessage("assistant", "a", reasoning="r" * 50)
    assert sizes.of(thinking, last=True) - sizes.of(thinking) == 50  # others' is not rendered
