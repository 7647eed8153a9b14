"""Conversations beyond the context: `python -m bench.conversations.context_windows`.

A client sends all of a conversation with each turn to `/v1/responses`, on the simulated engine with
a context of 4,096 tokens: 256 tokens of instructions and turns of 150, of which every second one
calls a tool. With `truncation` `auto` the frontend leaves out the oldest turns, down to three
quarters of the context. Next to it, a client that leaves out as few turns as it must, one by one;
and one that sends only what is new of a stored conversation, with `context_management`: after
answers, the model writes summaries of the oldest turns. This one goes on once a summary is written,
as users read answers first; "at once" it does not.

Prints, from the first turn that does not fit on, the share of prompt tokens whose KV was found, and
how often the cut moved. Then the CPU time of finding a cut in the whole history, with sizes of
messages that are known and that are not, and of tokenizing that history.
"""

import argparse
import asyncio
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from baton.cli.cluster.local.files.model_files import bundled_model
from baton.worker.wire.tokenizer_files import TokenizerFiles
from bench.harness import cli
from bench.harness.cluster import cluster
from bench.harness.table import Table
from services.frontend.openai.responses.input.items import messages_of
from services.frontend.text.chat_template import PLAIN
from services.frontend.text.message_sizes import MessageSizes
from services.frontend.text.tokenizer import Tokenizer
from services.frontend.text.turns import TurnCutter, steps_of

CONTEXT = 4096
"""The model's own."""
INSTRUCTIONS, TURN, OUTPUT, CALLED = 256, 150, 24, 40
"""Tokens."""
OPTIONS = (
    *("--engine", "sim", "--prefill", "0", "--decode", "0", "--combined", "1"),
    "--conversations",
)
WORDS = __doc__.split() if __doc__ else []
MOST_MESSAGES = 100_000
WHOLE_TURNS = 90
"""60 of them beyond the context."""
LEAST_FOUND = 0.8
THRESHOLD = (CONTEXT - OUTPUT) * 15 // 16 + 1
"""Tokens beyond which a summary is due if the request does not say."""
SUMMARY_SECONDS, POLL_SECONDS = 120.0, 0.2
SETTINGS = {"BATON_PUBLIC_METRICS": "true"}
Items = list[dict[str, Any]]


class Conversation:
    """Turns of a user, with texts of random words.

    Args:
        tokenizer: counts their tokens.
        seed: of the words.
    """

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(seed)
        self.instructions = self._text(INSTRUCTIONS)

    def turns(self, number: int) -> Iterator[Items]:
        """Yield the items of each turn, up to where an answer is asked for."""
        for turn in range(number):
            if turn % 2:
                yield [_user(self._text(TURN - OUTPUT))]
                continue
            call = {"type": "function_call", "call_id": f"c{turn}", "name": "look"}
            output = {"type": "function_call_output", "call_id": f"c{turn}"}
            yield [
                _user(self._text(TURN - OUTPUT - CALLED)),
                {**call, "arguments": "{}"},
                {**output, "output": self._text(CALLED)},
            ]

    def _text(self, tokens: int) -> str:
        words = ""
        while self._tokenizer.count(words) < tokens:
            words += self._rng.choice(WORDS) + " "
        return words


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


class Client:
    """Sends all of a conversation with each turn, or what fits of it.

    Args:
        http: of the cluster.
        model: its name.
        conversation: what is said.
        sizes: of messages, for a client that leaves out turns itself; None: the frontend does.
        summaries: whether it continues what is stored, with summaries.
        waits: whether it goes on only once a summary is written that is due.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        model: str,
        conversation: Conversation,
        sizes: MessageSizes | None = None,
        *,
        summaries: bool = False,
        waits: bool = False,
    ) -> None:
        self._http = http
        self._model = model
        self._conversation = conversation
        self._sizes = sizes
        self._summaries = summaries
        self._waits = waits
        self._turns: list[Items] = []
        self._first = 0
        self._last: str | None = None
        self.prompts: list[tuple[int, int, str]] = []
        """Of each answer beyond the context: its prompt's tokens, how many of them were found, and
        what was left out."""

    async def say(self, items: Items) -> None:
        """Send a turn, and keep what is answered."""
        self._turns.append(items)
        body = {
            "model": self._model,
            "instructions": self._conversation.instructions,
            "max_output_tokens": OUTPUT,
            "truncation": "disabled" if self._sizes else "auto",
            "stop_token_ids": [],
            "ignore_eos": True,
            **self._sent(items),
        }
        written = await self._written() if self._waits else 0
        response = await self._http.post("/v1/responses", json=body)
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {response.text}")
        answer = response.json()
        self._last = answer["id"]
        items += answer["output"]
        usage = answer["usage"]
        cut = response.headers.get("x-baton-truncated", "") or str(self._first or "")
        if cut:
            found = usage["input_tokens_details"]["cached_tokens"]
            self.prompts.append((usage["input_tokens"], found, cut))
        if self._waits and usage["total_tokens"] > THRESHOLD:
            async with asyncio.timeout(SUMMARY_SECONDS):
                while await self._written() == written:
                    await asyncio.sleep(POLL_SECONDS)

    async def _written(self) -> int:
        """Return how many summaries were written."""
        text = (await self._http.get("/metrics")).text
        found = re.search(r'^baton_frontend_summaries_total\{reason="ok"\} (\S+)', text, re.M)
        return int(float(found[1])) if found else 0

    def history(self) -> Items:
        """Return all items so far."""
        return [item for turn in self._turns for item in turn]

    def _sent(self, items: Items) -> dict[str, Any]:
        """Return the input of a turn, and what says how it is shortened."""
        if self._summaries:
            management = [{"type": "compaction"}]
            sent = {"input": list(items), "context_management": management}
            return sent | {"previous_response_id": self._last}
        while self._sizes and self._tokens(self._sizes) > CONTEXT - OUTPUT - CONTEXT // 32:
            self._first += 1
        kept = [item for turn in self._turns[self._first :] for item in turn]
        return {"input": kept, "store": False}

    def _tokens(self, sizes: MessageSizes) -> int:
        sent = [item for turn in self._turns[self._first :] for item in turn]
        messages = messages_of(sent, self._conversation.instructions, MOST_MESSAGES).messages
        return sum(map(sizes.of, messages[1:])) + sizes.fixed(messages[:1], PLAIN)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all of it; exit with an error if one of the frontend's finds less than 80 % of its
    prompts."""
    tokenizer = Tokenizer.load(TokenizerFiles.read(bundled_model()))
    table = Table(
        ("left out by", "<12"),
        ("answers", "8d"),
        ("prompt tokens", "14.0f"),
        ("found %", "8.1f"),
        ("computed", "9.0f"),
        ("cuts", "5d"),
    )
    results: dict[str, Any] = {}
    history: Items = []
    async with (
        cluster(*OPTIONS, settings=SETTINGS) as one,
        httpx.AsyncClient(base_url=f"http://{one.http}") as http,
    ):
        rows: tuple[tuple[str, dict[str, Any]], ...] = (
            ("auto", {}),
            ("the client", {"sizes": MessageSizes(tokenizer)}),
            ("summaries", {"summaries": True, "waits": True}),
            ("at once", {"summaries": True}),
        )
        for seed, (name, how) in enumerate(rows):
            conversation = Conversation(tokenizer, seed)
            client = Client(http, one.model, conversation, **how)
            for items in conversation.turns(options.turns):
                await client.say(items)
            history = client.history()
            results[name] = _row(table, name, client.prompts)
    results["ms"] = _counting(tokenizer, history)
    for name in ("auto", "summaries"):
        if options.turns >= WHOLE_TURNS and results[name]["found"] < LEAST_FOUND:
            raise SystemExit(f"{name} finds less than {LEAST_FOUND:.0%} of its prompts' tokens")
    return results


def _row(table: Table, name: str, prompts: Sequence[tuple[int, int, str]]) -> dict[str, float]:
    tokens = sum(prompt for prompt, _, _ in prompts)
    found = sum(cached for _, cached, _ in prompts)
    answers, cuts = len(prompts), len({cut for _, _, cut in prompts})
    table.row(
        name, answers, tokens / answers, found / tokens * 100, (tokens - found) / answers, cuts
    )
    return {"answers": answers, "tokens": tokens / answers, "found": found / tokens, "cuts": cuts}


def _counting(tokenizer: Tokenizer, history: Items) -> dict[str, float]:
    """Return the milliseconds that finding a cut takes, and tokenizing the history."""
    messages = messages_of(history, None, MOST_MESSAGES).messages
    steps, sizes = steps_of(messages), MessageSizes(tokenizer)

    def find() -> None:
        tokens = [sum(sizes.of(messages[at]) for at in step.messages) for step in steps]
        TurnCutter(steps, tokens, sizes.fixed([], PLAIN)).run(CONTEXT)

    spent = {
        "first": _milliseconds(find, 1),
        "again": _milliseconds(find, 10),
        "tokenize": _milliseconds(lambda: tokenizer.encode_chat(messages), 3),
    }
    print(
        f"{len(messages)} messages: the cut found in {spent['first']:.1f} ms, again in "
        f"{spent['again']:.2f} ms; tokenizing all of them {spent['tokenize']:.1f} ms"
    )
    return spent


def _milliseconds(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best * 1000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=WHOLE_TURNS, help="default: %(default)s")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--turns 30")
