"""Rows of tokens for training: whole rows are one conversation, so nothing is padded or masked.

A batch is a pure function of (seed, index, progress): a run that goes on after a stop draws the
batches that it would have drawn.
"""

import random
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from baton.engine.testing.random_tokenizer import TURN_END
from train import tokenizer as text_tokenizer
from train.text import facts
from train.text.conversation import TASKS, Conversation, Message, Mix
from train.text.documents import UNSCORED_END, UNSCORED_START
from train.text.words import Draw

# Weights of a token's loss, by what it is.
VALUE_WEIGHT = 3.0
ANSWER_WEIGHT = 1.0
TEXT_WEIGHT = 0.1
# Of what users say only a part is scored, and weighs more: the same on average, for less work.
_TEXT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Batch:
    """Arrays [rows, tokens]."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32]
    """Of each target's loss; 0 where it is not scored."""
    tasks: NDArray[np.int64]
    """Index into TASKS of each target."""
    positions: NDArray[np.int64]
    """Rising, below the context; with gaps in some rows."""


LENGTHS = (256, 512, 1024, 2048, 4096)
"""Every length that rows have."""
TALK_LENGTHS = (256, 256, 256, 512, 512, 512, 512, 1024, 1024, 2048)
"""Of rows that teach to talk; gaps in their positions keep what is far away in reach."""


def row_tokens(draw: Draw, progress: float) -> int:
    """Length of a batch's rows at a point of the run (0 to 1): short first, long last."""
    if progress < 0.10:
        return 256
    if progress < 0.50:
        return draw.choice((256, 512, 512, 512))
    if progress < 0.70:
        return draw.choice((512, 1024, 1024))
    if progress < 0.88:
        return draw.choice((512, 1024, 2048, 2048))
    return draw.choice((256, 1024, 2048, 2048, 4096))


def mix(progress: float, tokens: int) -> Mix:
    """Look-ups and copies alone make attention learn to copy; then comes everything else."""
    if progress < 0.10:
        return Mix(retrieval=6, story=0.1, copy=4, filler=0, most_facts=3)
    if tokens >= 2048:
        return Mix(filler=1.0, story=0.9)
    return replace(Mix(), most_facts=4 if tokens <= 256 else 8)


def talk_mix(tokens: int) -> Mix:
    """What a model that is trained already learns besides: to talk, and to end what it writes."""
    most = 4 if tokens <= 256 else 8
    if tokens >= 2048:
        return Mix(filler=1.0, story=0.9, talk=3, beyond=3, document=1, most_facts=most)
    return Mix(
        retrieval=2.2, story=0.6, talk=12, beyond=6, poem=0.6, scribble=0.3, unknown=0.8,
        document=2.0, copy=0.8, sort=1.8, count=2.0, sums=0.8, filler=0.2, tool=0.1,
        most_facts=most,
    )  # fmt: skip


def make_batch(
    tokenizer: Tokenizer,
    seed: int,
    index: int,
    progress: float,
    tokens: int,
    context: int,
    *,
    talk: bool = False,
) -> Batch:
    """Draw a batch of about `tokens` tokens, for a model of `context` positions."""
    draw = random.Random(f"{seed}.{index}")
    length = draw.choice(TALK_LENGTHS) if talk else row_tokens(draw, progress)
    made = [
        _row(tokenizer, draw, talk_mix(length) if talk else mix(progress, length), length, context)
        for _ in range(max(1, tokens // length))
    ]
    ids, weights, tasks, positions = (np.stack(column) for column in zip(*made, strict=True))
    return Batch(ids[:, :-1], ids[:, 1:], weights[:, 1:], tasks[:, 1:], positions)


def score(
    tokenizer: Tokenizer, messages: list[Message]
) -> tuple[list[int], list[float], list[int]]:
    """Token ids of rendered messages with each one's weight and task."""
    text = text_tokenizer.render(messages)
    weights = np.full(len(text), TEXT_WEIGHT, np.float32)
    tasks = np.zeros(len(text), np.int64)
    at = 0
    for message in messages:
        at += len(text_tokenizer.head(message))
        begin = at
        weight = ANSWER_WEIGHT
        for char in message.text:
            if char == facts.VALUE_START:
                weight = VALUE_WEIGHT
            elif char == UNSCORED_START:
                weight = 0.0
            elif char in (facts.VALUE_END, UNSCORED_END):
                weight = ANSWER_WEIGHT
            else:
                if message.role == "assistant":
                    weights[at] = weight
                at += 1
        end = at + len(TURN_END)
        if message.role == "assistant":
            weights[at:end] = ANSWER_WEIGHT
            tasks[begin:end] = TASKS.index(message.task)
        at = end + 1
    encoded = tokenizer.encode(text)
    last = [end - 1 for _, end in encoded.offsets]
    return encoded.ids, weights[last].tolist(), tasks[last].tolist()


Row = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def _row(tokenizer: Tokenizer, draw: Draw, mixed: Mix, length: int, context: int) -> Row:
    talk = Conversation(draw, mixed)
    # A token is nearly four characters: enough text is then tokenized once.
    while sum(len(m.text) + 20 for m in talk.messages) < 5 * (length + 1):
        talk.turn()
    ids, weights, tasks = score(tokenizer, talk.messages)
    while len(ids) <= length:
        talk.turn()
        ids, weights, tasks = score(tokenizer, talk.messages)
    weighed = np.array(weights[: length + 1], np.float32)
    noise = np.random.default_rng(draw.getrandbits(32)).random(length + 1)
    unscored = (weighed == np.float32(TEXT_WEIGHT)) & (noise > _TEXT_SHARE)
    weighed[weighed == np.float32(TEXT_WEIGHT)] = TEXT_WEIGHT / _TEXT_SHARE
    weighed[unscored] = 0
    return (
        np.array(ids[: length + 1], np.int64),
        weighed,
        np.array(tasks[: length + 1], np.int64),
        _positions(draw, length, context),
    )


def _positions(draw: Draw, length: int, context: int) -> NDArray[np.int64]:
    """Half of the rows skip positions at a few places (PoSE, arXiv:2309.10400).

    Short rows then hold questions as far from their facts, in positions, as long rows do.
    """
    positions = np.arange(length)
    spare = context - length
    if spare > 0 and draw.random() < 0.5:
        spare = draw.randint(0, spare)
        cuts = sorted(draw.randint(0, spare) for _ in range(3))
        steps = [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1]]
        for step in steps:
            positions[draw.randrange(1, length) :] += step
    return positions
