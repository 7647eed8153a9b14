"""The oldest turns are left out, whole, and the cut stays where it is for many turns."""

import random
from itertools import pairwise

from services.frontend.text.chat_template import ChatMessage, ChatToolCall
from services.frontend.text.turns import WHOLE, ConversationStep, TurnCut, TurnCutter, steps_of

LIMIT, FIXED = 4096, 256
CALL = ChatToolCall("c", "look", "{}")


def conversation(rng: random.Random, turns: int) -> list[ChatMessage]:
    """Return turns of one or two questions, calls with their outputs, and an answer."""
    messages = [ChatMessage("system", "be kind")]
    for _ in range(turns):
        messages += [ChatMessage("user", "?")] * rng.choice((1, 1, 2))
        for _ in range(rng.choice((0, 0, 1, 3))):
            messages.append(ChatMessage("assistant", "", tool_calls=[CALL] * rng.choice((1, 2))))
            messages += [ChatMessage("tool", "", tool_call_id="c")] * len(messages[-1].tool_calls)
        messages.append(ChatMessage("assistant", "!"))
        if rng.random() < 0.1:
            messages.append(ChatMessage("developer", "be brief"))
    return messages


def cut_of(
    steps: list[ConversationStep], tokens: list[int], cut: TurnCut = WHOLE, limit: int = LIMIT
) -> TurnCutter:
    cutter = TurnCutter(steps, tokens, FIXED, cut)
    cutter.run(limit)
    return cutter


def test_each_longer_history_is_cut_at_the_same_place_until_it_is_full_again() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        steps = steps_of(conversation(rng, 60))
        tokens = [rng.randrange(10, 200) for _ in steps]
        cuts = [WHOLE]
        for length in range(1, len(steps) + 1):
            found = cut_of(steps[:length], tokens[:length])
            assert found.total <= LIMIT
            assert found.total == FIXED + sum(tokens[:length]) - found.left_out[1]
            if found.cut != cuts[-1]:
                assert found.cut.start > cuts[-1].start
                assert found.total <= LIMIT * 3 // 4
            # Remembered, it is what reading all of the history finds.
            assert cut_of(steps[:length], tokens[:length], cuts[-1]).cut == found.cut
            cuts.append(found.cut)
        changes = sum(before != after for before, after in pairwise(cuts))
        assert 0 < changes < len(steps) / 6


def test_turns_are_left_out_whole_and_instructions_never() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        messages = conversation(rng, 30)
        steps = steps_of(messages)
        found = cut_of(steps, [rng.randrange(50, 300) for _ in steps])
        dropped, _ = found.left_out
        assert dropped
        kept = [message for at, message in enumerate(messages) if at not in dropped]
        told = [message for message in kept if message.role in ("system", "developer")]
        assert told == [one for one in messages if one.role in ("system", "developer")]
        said = [message.role for message in kept if message.role not in ("system", "developer")]
        assert said[0] == "user"
        assert said == [
            one.role
            for one in messages[found.cut.start :]
            if one.role not in ("system", "developer")
        ]


def test_of_one_long_turn_the_oldest_calls_are_left_out_with_their_outputs() -> None:
    step = [ChatMessage("assistant", "", tool_calls=[CALL]), ChatMessage("tool", "")]
    messages = [ChatMessage("user", "?"), *step * 40]
    steps = steps_of(messages)
    cuts = {cut_of(steps[:at], [100] * at, limit=1000).cut for at in range(1, len(steps) + 1)}
    assert 5 < len(cuts) < 20
    found = cut_of(steps, [100] * len(steps), limit=1000)
    dropped, tokens = found.left_out
    assert (found.cut.start, found.cut.resume) == (0, max(dropped) + 1)
    assert 0 not in dropped
    assert len(dropped) * 50 == tokens
    later = [*messages, ChatMessage("user", "?"), ChatMessage("assistant", "!")]
    steps = steps_of(later)
    assert cut_of(steps, [100] * len(steps), limit=900).cut.start == len(messages)


def test_the_last_turn_is_kept_if_it_does_not_fit() -> None:
    steps = steps_of([ChatMessage("user", "?"), ChatMessage("assistant", "!")] * 3)
    found = cut_of(steps, [100, 100, 100, 100, 9000, 100])
    assert found.cut == TurnCut(4, 4)
    assert not found.advance()
    assert cut_of([], []).cut == WHOLE
    assert cut_of(steps_of([ChatMessage("system", "x")]), []).total == FIXED


def test_one_more_turn_is_left_out_at_a_time() -> None:
    steps = steps_of([ChatMessage("user", "?"), ChatMessage("assistant", "!")] * 3)
    cutter = TurnCutter(steps, [1] * 6, FIXED)
    starts = [cutter.cut.start]
    while cutter.advance():
        starts.append(cutter.cut.start)
    assert starts == [0, 2, 4]


def test_a_summary_stands_for_the_first_turns_as_far_as_its_prompt_has_space() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        messages = conversation(rng, 40)
        steps = steps_of(messages)
        tokens = [rng.randrange(10, 200) for _ in steps]
        users = {step.messages[0] for step in steps if step.user}
        cutter = TurnCutter(steps, tokens, FIXED)
        cutter.run(LIMIT, added=300)
        cut = cutter.cut.start
        assert cutter.total <= LIMIT
        start, covered = cutter.first_turns(1 << 30)
        assert start == cut
        before = [at for at, step in enumerate(steps) if step.messages[0] < start]
        assert covered == sum(tokens[at] for at in before)
        start, covered = cutter.first_turns(FIXED + 700)
        assert start in users
        assert 0 <= covered <= 700
        assert cutter.first_turns(FIXED) == (0, 0)


def test_summaries_belong_to_no_step() -> None:
    messages = [ChatMessage("user", "?"), ChatMessage("assistant", "!")] * 3
    assert [step.messages for step in steps_of(messages, {0, 1})] == [(2,), (3,), (4,), (5,)]
