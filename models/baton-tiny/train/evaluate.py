"""Measure a checkpoint with the project's own engine: `python -m train.evaluate`.

Answers are generated greedily and must be right to the letter. What is asked is kept from training
(names and numbers) or drawn with a seed that training does not use.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from tokenizers import Tokenizer

from baton.engine.base import Engine, SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from train import tokenizer as text_tokenizer
from train.card import write_scores
from train.text import lists
from train.text.conversation import Message, probe

DISTANCES = (64, 128, 256, 512, 1024, 2000)
"""Tokens between the end of the facts and the question."""
PROMPTS = (
    "Tell me a story about a fox", "Who are you?", "Hello", "How are you?", "What can you do?",
    "Sort these numbers: 42, 7, 19, 3", "Sort these words: pear, apple, fox", "Count to ten",
    "Count from 4 to 9", "Tell me a joke", "What is the capital of France?",
    "Write me a story about two friends", "thanks!", "Repeat after me: blue lamp 731",
)  # fmt: skip
GREEDY = SamplingParams(temperature=0.0)
_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation that waits for an answer."""

    messages: Sequence[Message]
    expected: str


class Asker:
    """Generates answers."""

    def __init__(self, directory: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._engine: Engine = create_engine(EngineSettings(model=directory, dtype="float32"))
        self._next = 0

    def answers(
        self, prompts: Sequence[str], max_tokens: int, sampling: SamplingParams = GREEDY
    ) -> list[str]:
        """The answer to each rendered prompt."""
        found: list[str] = []
        for begin in range(0, len(prompts), _AT_ONCE):
            requests = [
                self._request(p, max_tokens, sampling) for p in prompts[begin : begin + _AT_ONCE]
            ]
            outputs = run_local(self._engine, requests)
            found += [self._tokenizer.decode(output.tokens[0]).strip() for output in outputs]
        return found

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return len(self._tokenizer.encode(text).ids)

    def _request(self, prompt: str, max_tokens: int, sampling: SamplingParams) -> SequenceRequest:
        self._next += 1
        return SequenceRequest(
            id=self._next,
            root=b"evaluation",
            prompt=self._tokenizer.encode(prompt).ids,
            sampling=replace(
                sampling,
                max_tokens=max_tokens,
                stop_token_ids=tuple(self._engine.info.eos_token_ids),
            ),
        )


def retrieval(asker: Asker, distance: int, size: int, seed: int = 1) -> list[Question]:
    """Questions about facts told `distance` tokens before, give or take 3 %."""
    draw = random.Random(f"retrieval.{seed}.{distance}")
    found: list[Question] = []
    while len(found) < size:
        fact_seed, filler = draw.getrandbits(32), int(distance * 0.7)
        for _ in range(6):
            messages, fact = probe(random.Random(fact_seed), filler)
            between = asker.tokens(text_tokenizer.render(messages[1:-1]))
            if abs(between - distance) <= max(8, distance * 0.03):
                found.append(Question(messages, fact.value))
                break
            filler = max(0, filler + round((distance - between) * 0.7))
    return found


def exercises(draw_one: Callable[[random.Random], lists.Exercise], size: int) -> list[Question]:
    """Single-turn exercises; the whole answer is expected."""
    draw = random.Random("exercises")
    pairs = [draw_one(draw) for _ in range(size)]
    return [Question([Message("user", request)], answer) for request, answer in pairs]


def share_right(asker: Asker, questions: Sequence[Question], *, whole: bool) -> float:
    """Part of the questions answered right.

    Args:
        asker: the model.
        questions: what to ask.
        whole: the answer is exactly what is expected; else it ends in it, before the full stop.
    """
    prompts = [text_tokenizer.render(q.messages, ask=True) for q in questions]
    longest = 160 if whole else 48
    right = 0
    for question, answer in zip(questions, asker.answers(prompts, longest), strict=True):
        right += answer == question.expected if whole else value_of(answer) == question.expected
    return right / len(questions)


def value_of(answer: str) -> str:
    """The last word of an answer; of `4711 coins`, the number."""
    words = answer.rstrip(".").split(" ")
    units = ("coins", "books", "years", "old")
    while len(words) > 1 and words[-1] in units:
        words.pop()
    return words[-1]


def evaluate(directory: Path, size: int) -> dict[str, object]:
    """All scores, and answers to the prompts of newcomers."""
    asker = Asker(directory)
    tasks = {"sort": lists.sort, "count": lists.count, "copy": lists.copy}
    prompts = [text_tokenizer.render([Message("user", p)], ask=True) for p in PROMPTS]
    return {
        "retrieval": {
            str(distance): share_right(asker, retrieval(asker, distance, size), whole=False)
            for distance in DISTANCES
        },
        "tasks": {
            name: share_right(asker, exercises(one, size), whole=True)
            for name, one in tasks.items()
        },
        "questions": size,
        "answers": dict(zip(PROMPTS, asker.answers(prompts, 300), strict=True)),
    }


def main() -> None:
    """Evaluate; print a table, and write JSON and the model card's scores where asked."""
    parser = argparse.ArgumentParser(description="Measure the demo model.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--size", type=int, default=200, help="questions per score")
    parser.add_argument("--json", type=Path, help="file for the scores")
    parser.add_argument("--card", type=Path, help="model card whose scores are replaced")
    options = parser.parse_args()
    scores = evaluate(options.checkpoint, options.size)
    if options.json:
        options.json.write_text(json.dumps(scores, indent=2) + "\n")
    table = write_scores(scores, options.card)
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
