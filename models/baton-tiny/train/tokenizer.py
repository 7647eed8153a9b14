"""The tokenizer: a byte-level BPE of 4096 tokens; every digit is a token of its own."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from baton.engine.testing.random_tokenizer import (
    SPECIAL_TOKENS,
    TURN_END,
    TURN_START,
    tokenizer_config,
)
from train.text import documents, facts, words
from train.text.conversation import Conversation, Message, Mix

VOCAB = 4096
_MARKS = dict.fromkeys(map(ord, (*facts.MARKS, *documents.MARKS)))


def train(seed: int = 0, conversations: int = 1200) -> Tokenizer:
    """Learn merges from generated conversations; equal arguments make equal tokenizers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(seed, conversations), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != VOCAB:
        raise ValueError(f"the text has merges for {tokenizer.get_vocab_size()} tokens only")
    return tokenizer


def save(tokenizer: Tokenizer, directory: Path, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, the chat template in it."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = json.dumps(tokenizer_config(context), indent=2)
    (directory / "tokenizer_config.json").write_text(config + "\n")


def render(messages: Sequence[Message], *, ask: bool = False) -> str:
    """What the chat template makes of messages; `ask` adds the head of an answer."""
    text = "".join(f"{head(m)}{m.text}{TURN_END}\n" for m in messages)
    text = _shown(text)
    return f"{text}{TURN_START}assistant\n" if ask else text


def head(message: Message) -> str:
    """What stands before a message's text."""
    return f"{TURN_START}{message.role}\n"


def _shown(text: str) -> str:
    """Return a text without its marks."""
    return text.translate(_MARKS)


def _text(seed: int, conversations: int) -> Iterator[str]:
    draw = random.Random(seed)
    # Few made-up names: theirs stay in pieces, and copying pieces works for every name.
    even = Mix(
        retrieval=1, story=2, talk=3, beyond=2, copy=0.2, sort=1, count=1, filler=1, tool=1,
        document=1, most_facts=2,
    )  # fmt: skip
    for _ in range(conversations):
        talk = Conversation(draw, even)
        while len(talk.messages) < 16:
            talk.turn()
        for message in talk.messages:
            yield _shown(message.text)
    for group in (words.PEOPLE, words.BEINGS, words.OBJECTS, words.FOODS, words.COUNT_WORDS):
        yield from (f"The {word} and a {word}, {word}" for word in group)
