"""The generator: seeded, never self-contradictory, and blind to what is held out."""

import itertools
import random

import pytest

from train.text import facts, lists, stories, words
from train.text.conversation import Conversation, Mix, probe


def conversation(seed: int, turns: int = 12, mix: Mix | None = None) -> Conversation:
    talk = Conversation(random.Random(seed), mix or Mix())
    for _ in range(turns):
        talk.turn()
    return talk


def test_the_same_seed_makes_the_same_conversation():
    assert conversation(5).messages == conversation(5).messages
    assert conversation(5).messages != conversation(6).messages


def test_users_and_the_assistant_take_turns():
    for seed in range(40):
        roles = [m.role for m in conversation(seed).messages if m.role != "system"]
        for before, after in itertools.pairwise(roles):
            assert (before, after) in {
                ("user", "assistant"),
                ("assistant", "user"),
                ("assistant", "tool"),
                ("tool", "assistant"),
            }


def test_names_and_numbers_held_out_do_not_occur_in_training():
    for seed in range(60):
        source = facts.Facts(random.Random(seed))
        told = [source.about_others() for _ in range(8)]
        for fact in told:
            if fact.value.isdigit() or fact.value[0].isupper():
                assert not words.held_out(fact.value), fact


def test_a_probe_asks_only_for_what_is_held_out():
    for seed in range(60):
        messages, fact = probe(random.Random(seed), 50)
        assert words.held_out(fact.value)
        assert fact.value in messages[0].text
        assert fact.value not in messages[-1].text
        assert messages[-1].role == "user"


def test_facts_of_one_conversation_do_not_contradict_each_other():
    for seed in range(40):
        source = facts.Facts(random.Random(seed))
        answers: dict[str, str] = {}
        for _ in range(30):
            fact = source.about_others()
            assert answers.setdefault(fact.question, fact.value) == fact.value


@pytest.mark.parametrize("seed", range(50))
def test_exercises_are_right(seed):
    draw = random.Random(seed)
    request, answer = lists.sort(draw)
    items = answer.split(", ")
    assert items == sorted(items, key=lambda item: (int(item) if item.isdigit() else 0, item))
    assert all(item in request for item in items)
    request, answer = lists.copy(draw)
    assert request.endswith(answer)


def test_a_story_is_about_what_was_asked_for():
    text = stories.story(random.Random(1), "fox", "Zimo")
    assert "fox" in text
    assert "Zimo" in text
    assert "{" not in text
    assert 50 <= len(text.split()) <= 250
