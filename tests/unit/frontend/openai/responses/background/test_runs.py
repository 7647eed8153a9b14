"""Events are read again from any of them, and a frontend that continues makes the same ones."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from baton.conversations.background.events import events_from
from baton.conversations.background.records import EventPiece, RunLease
from baton.conversations.records import StateScope
from baton.request.stream_events import (
    ChoiceFinished,
    Finished,
    FinishReason,
    Started,
    TokenLogprob,
    Usage,
)
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.openai.responses.background.folding import output_of
from services.frontend.openai.responses.background.output import OutputPart, unpack_output
from services.frontend.openai.responses.background.run import BackgroundRun
from services.frontend.output.formats import answer_format
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level
from tests.unit.frontend.openai.responses.test_events import BLOCK, encoder
from tests.unit.frontend.output.test_transcripts import HERE, USE

STREAMS = 100
STARTED = Started("r", "m", 1, 1)
TEXTS = (
    "<think>\nWhere? é\n</think>\n\n",
    "Hé 世 🤖 and more",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "東京 🗼"}}\n</tool_call>',
    "\u2028 data: [DONE]\n\n",
)
TOKENIZER = Tokenizer(byte_level(), ChatTemplate((HERE / "templates/hermes.jinja").read_text()))
Requests = Callable[..., ResolvedRequest]


@pytest.fixture
def request_of(request_for: Requests) -> Requests:
    """Makes requests to a model that thinks and calls; its tokens are bytes."""

    def make(**sampling: Any) -> ResolvedRequest:
        request = request_for(**sampling)
        read = answer_format(TOKENIZER, "auto", "auto").reader(
            USE, TOKENIZER, request.prompt, 1, "r"
        )
        model = replace(request.model, own_tokenizer=TOKENIZER)
        return replace(request, model=model, reader=read)

    return make


class Answer:
    """A run of tokens that a generation delivers in random pieces, and the database stores."""

    def __init__(self, request: ResolvedRequest, rng: random.Random, *, logprobs: bool) -> None:
        self.rng, self.request, self.logprobs = rng, request, logprobs
        self.pieces: list[EventPiece] = []
        self.events: list[bytes] = []
        buffer = SimpleNamespace(pause=lambda: None, resume=lambda: None)
        self.run = BackgroundRun(RunLease(StateScope("t", "p"), BLOCK, 1))
        fields: Any = {"top_logprobs": 1} if logprobs else {}
        generation: Any = SimpleNamespace(request=request, buffer=buffer)
        context: Any = None
        self.run.attach(generation, encoder(background=True, **fields), context)

    def store(self) -> None:
        piece = self.run.piece()
        if piece is not None:
            self.pieces.append(piece)
            self.run.stored(piece)

    def generate(self, tokens: list[int], kept: list[int]) -> None:
        """Take tokens after those that were kept, and the end."""
        output, left = ChoiceOutput(self.request, 0), list(tokens)
        output.push(kept)
        self.take(STARTED)
        while left:
            several = [left.pop(0) for _ in range(min(len(left), self.rng.randrange(1, 6)))]
            delta = output.push(several)
            entries = [TokenLogprob(-token / 7, ((token, -0.5),)) for token in several]
            self.take(msgspec.structs.replace(delta, logprobs=entries if self.logprobs else ()))
            if self.rng.random() < 0.1:
                self.store()
        self.take(ChoiceFinished(0, FinishReason.LENGTH, ""))
        self.take(Finished(Usage(5, 2, 3, 4, 0.0, 0.0), ()))
        self.run.add(self.run.encoder.end())
        whole = self.run.piece(whole=True)
        assert whole is not None
        self.pieces.append(whole)
        self.run.finish()
        self.events = events_from([(p.last, p.events) for p in self.pieces], 0)

    def take(self, event: Any) -> None:
        assert self.run.take([event]) is False


def answered(request_of: Requests, seed: int) -> tuple[Answer, list[int]]:
    rng = random.Random(seed)
    texts = rng.choices(TEXTS[1:], k=rng.randrange(1, 4))
    tokens = TOKENIZER.encode("".join([TEXTS[0] * rng.randrange(2), *texts]))
    request = request_of(max_tokens=len(tokens))
    made = Answer(request, rng, logprobs=bool(seed % 2))
    made.generate(tokens, [])
    return made, tokens


def test_the_rest_after_any_event_comes_again(request_of: Requests) -> None:
    for seed in range(STREAMS):
        made, _ = answered(request_of, seed)
        pieces = [(piece.last, piece.events) for piece in made.pieces]
        numbers = [json.loads(e.split(b"\ndata: ")[1])["sequence_number"] for e in made.events]
        assert numbers == list(range(len(made.events)))
        for number in range(len(made.events) + 1):
            found = [piece for piece in pieces if piece[0] >= number]
            assert events_from(found, number) == made.events[number:]


def test_another_frontend_makes_the_same_events_from_tokens(request_of: Requests) -> None:
    for seed in range(STREAMS):
        made, tokens = answered(request_of, seed)
        kept, count = OutputPart(), random.Random(seed).randrange(len(made.pieces))
        for piece in made.pieces[:count]:
            kept.add(unpack_output(piece.output))
        second = Answer(made.request, random.Random(-seed), logprobs=made.logprobs)
        second.pieces = made.pieces[:count]
        if count:
            second.run.restore(STARTED, kept)
            assert second.run.first == second.pieces[-1].last + 1
        second.generate(tokens[len(kept.token_ids) :], kept.token_ids)
        assert second.events == made.events, seed


def test_events_add_up_to_what_the_encoder_has(request_of: Requests) -> None:
    for seed in range(0, STREAMS, 2):
        made, _ = answered(request_of, seed)
        assert output_of(made.events) == made.run.encoder.body()["output"]
        for cut in range(0, len(made.events), 7):
            for item in output_of(made.events[:cut]):
                assert item["status"] in ("completed", "incomplete")


def test_an_end_waits_for_a_client_until_it_is_stored() -> None:
    run = BackgroundRun(RunLease(StateScope("t", "p"), BLOCK, 1))
    run.add(b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n")
    assert (run.next, run.events_from(0), run.piece()) == (2, [], None)
    whole = run.piece(whole=True)
    assert whole is not None
    assert whole.last == 1
    run.finish()
    assert run.events_from(1) == [b"event: b\ndata: 2\n\n"]


@pytest.mark.parametrize("exact", [True, False])
def test_events_that_no_other_frontend_makes_again_are_shown_once_stored(
    request_of: Requests, *, exact: bool
) -> None:
    request = request_of(max_tokens=5)
    request = replace(request, model=replace(request.model, exact_continuation=exact))
    made = Answer(request, random.Random(0), logprobs=False)
    made.take(STARTED)
    shown = made.run.events_from(0)
    assert shown is not None
    assert len(shown) == (2 if exact else 0)
    made.store()
    made.take(ChoiceOutput(request, 0).push(TOKENIZER.encode("ab")))
    made.run.moved = True  # another frontend has it
    made.run.finish()
    shown = made.run.events_from(0)
    assert shown is not None
    assert len(shown) == (made.run.next if exact else 2)
