"""Rows of training: what is scored, how much, and the same each time."""

import numpy as np
import pytest

from train.batches import (
    ANSWER_WEIGHT,
    LENGTHS,
    TEXT_WEIGHT,
    VALUE_WEIGHT,
    make_batch,
    score,
)
from train.text.conversation import Message
from train.text.facts import VALUE_END, VALUE_START

CONTEXT = 4096


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.6, 0.8, 0.95])
def test_a_batch_is_a_pure_function_of_its_index(tokenizer, progress):
    one, again, other = (
        make_batch(tokenizer, 3, index, progress, 1024, CONTEXT) for index in (7, 7, 8)
    )
    assert np.array_equal(one.inputs, again.inputs)
    assert np.array_equal(one.positions, again.positions)
    assert not np.array_equal(one.inputs.ravel()[:200], other.inputs.ravel()[:200])
    assert one.inputs.shape[1] in LENGTHS
    assert np.array_equal(one.inputs[:, 1:], one.targets[:, :-1])


def test_positions_rise_and_stay_in_the_context(tokenizer):
    for index in range(20):
        positions = make_batch(tokenizer, 0, index, 0.3, 1024, CONTEXT).positions
        assert (np.diff(positions) >= 1).all()
        assert positions.min() >= 0
        assert positions.max() < CONTEXT


def test_the_value_weighs_most_and_the_marks_are_not_shown(tokenizer):
    messages = [
        Message("user", "Please remember: The code of Zimo is 4711."),
        Message("user", "What is the code of Zimo?"),
        Message("assistant", f"The code of Zimo is {VALUE_START}4711{VALUE_END}.", "retrieval"),
    ]
    ids, weights, tasks = score(tokenizer, messages)
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert VALUE_START not in text
    assert text.count("4711") == 2
    heavy = [i for i, weight in enumerate(weights) if weight == VALUE_WEIGHT]
    assert tokenizer.decode([ids[i] for i in heavy]).strip() == "4711"
    # The end of the answer is learned too; what the user says hardly.
    assert weights[heavy[-1] + 1] == ANSWER_WEIGHT
    assert weights[2] == np.float32(TEXT_WEIGHT)
    assert len(ids) == len(weights) == len(tasks)
