"""What the generator says, and how its answers are told from others."""

import json
import random

import numpy as np
import pytest

from train.batches import ANSWER_WEIGHT, make_batch, score, talk_mix
from train.first_messages import FIRST_MESSAGES, KEPT_OUT, normalized
from train.sense import sensible, well_formed
from train.text import beyond, documents, poems, stories, talk
from train.text.conversation import Conversation, Message
from train.text.typing import typed_freely


def bare(text: str) -> str:
    return "".join(char for char in text if char not in documents.MARKS)


def test_what_the_model_is_judged_by_is_never_in_training() -> None:
    assert len(KEPT_OUT) == len(FIRST_MESSAGES) == 40
    for seed in range(30):
        made = Conversation(random.Random(seed), talk_mix(512))
        for _ in range(60):
            made.turn()
        for message in made.messages:
            assert normalized(message.text) not in KEPT_OUT


def test_a_drawn_message_that_is_kept_out_is_drawn_again() -> None:
    made = Conversation(random.Random(1), talk_mix(512))
    drawn = iter([("Who am I speaking with?", "no"), ("WHAT IS 2 + 2", "no"), ("Hi", "Hello!")])
    made._pair(lambda _: next(drawn), "talk", lambda _, text: text)
    assert [one.text for one in made.messages if one.role != "system"] == ["Hi", "Hello!"]


@pytest.mark.parametrize(
    "draw_one", [talk.small_talk, beyond.beyond, beyond.sums, poems.poem, talk.scribble]
)
def test_answers_of_the_generator_are_well_formed(draw_one) -> None:
    for seed in range(200):
        request, answer = draw_one(random.Random(seed))
        assert "{" not in request + answer
        assert well_formed(answer), answer


def test_stories_are_well_formed() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        assert well_formed(stories.request(draw)[1])


@pytest.mark.parametrize(
    "answer", ["Thank youhi.", "Hello! How can I", "I am fine, thank you. fox", "", "1, 2, and"]
)
def test_pieces_of_answers_are_not(answer: str) -> None:
    assert not well_formed(answer)


def test_an_answer_that_does_not_suit_is_not_sensible() -> None:
    assert sensible("count to 7", "1, 2, 3, 4, 5, 6, 7")
    assert not sensible("count to 7", "1, 2, 3, 4, 5, 6, 7, 8")
    assert not sensible("count to 7", "Hello! How can I help you?")


def test_documents_are_json_and_their_beginning_is_not_learned(tokenizer) -> None:
    for seed in range(100):
        draw = random.Random(seed)
        _, text = documents.document(draw, "Hi")
        body = bare(text).removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
        json.loads(body)
        assert text.startswith(documents.UNSCORED_START)
    messages = [Message("user", "Hi"), Message("assistant", '\x03{"\x04x": 7}', "other")]
    ids, weights, _ = score(tokenizer, messages)
    shown = tokenizer.decode(ids, skip_special_tokens=False)
    assert '{"x": 7}' in shown
    at = len(tokenizer.encode(shown[: shown.index('{"x"')]).ids)
    assert weights[at] == 0
    assert weights[-3] == ANSWER_WEIGHT


def test_batches_of_talk_have_rows_of_their_own(tokenizer) -> None:
    one, again = (make_batch(tokenizer, 3, 7, 0.6, 1024, 4096, talk=True) for _ in range(2))
    assert np.array_equal(one.inputs, again.inputs)
    other = make_batch(tokenizer, 3, 7, 0.6, 1024, 4096)
    assert one.inputs.shape != other.inputs.shape or not np.array_equal(one.inputs, other.inputs)


def test_typing_keeps_something_of_the_message() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        text, _ = talk.small_talk(draw)
        assert typed_freely(draw, text).strip()
