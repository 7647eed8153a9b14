"""What is stored of a stream is what its chunks add up to, and what a whole response would be."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from baton.conversations.completions.records import StoredCompletion
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    Part,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    Usage,
)
from services.frontend.openai.completions.storing import KeptChunks, KeptCompletion
from services.frontend.openai.request.decode import read_chat
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.templates import CHAT
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import byte_level

CHOICES = 3
TEXTS = ("a", "é", "\u2028", '"}\n', "data: [DONE]", "🤖", " ", "\\", "\0")
OURS = StateScope("acme", "proj_1")
MODEL = SimpleNamespace(name="m", tokenizer=Tokenizer(byte_level(), ChatTemplate("")))
RESOLVED: Any = SimpleNamespace(model=MODEL, prompt=[1], special_text=False)
BODY = read_chat(b'{"messages":[{"role":"user","content":"hi","name":null}],"metadata":{"a":"b"}}')


class Kept(list[StoredCompletion]):
    """A store that keeps what is written to it."""

    async def keep(self, scope: StateScope, completion: StoredCompletion) -> None:
        assert scope == OURS
        self.append(completion)


def parts_of(rng: random.Random) -> list[Part]:
    """Return the parts of a random output: reasoning, text, calls, perhaps cut off."""
    parts: list[Part] = [Reasoning(text) for text in rng.choices(TEXTS, k=rng.randrange(3))]
    parts += [Text(text) for text in rng.choices(TEXTS, k=rng.randrange(4))]
    for call in range(rng.randrange(3)):
        name, texts = rng.choice(("look", "edit")), rng.choices(TEXTS, k=rng.randrange(4))
        if name == "edit":
            texts = list(json.dumps({"input": "".join(texts)}))
        parts.append(CallBegun(call, f"call_{call}", name))
        parts += [CallArguments(call, text) for text in texts]
        parts.append(CallEnded(call))
    if rng.random() < 0.3:
        parts = parts[: rng.randrange(len(parts) + 1)]
        begun = sum(isinstance(part, CallBegun) for part in parts)
        if begun > sum(isinstance(part, CallEnded) for part in parts):
            parts.append(CallEnded(begun - 1))
    return parts


def events_of(rng: random.Random) -> list[Event]:
    """Return the events of random outputs, which take turns."""
    left = [parts_of(rng) for _ in range(CHOICES)]
    events: list[Event] = [Started("r", "m", 1, CHOICES)]
    while any(left):
        choice = rng.randrange(CHOICES)
        parts, left[choice] = left[choice][:2], left[choice][2:]
        if parts:
            text = "".join(part.text for part in parts if isinstance(part, Text))
            plain = all(isinstance(part, Text) for part in parts) and rng.random() < 0.5
            logprob = TokenLogprob(-rng.random(), ((65, -0.5),))
            events.append(Delta(choice, 0, [65], text, [logprob], () if plain else parts))
    for choice in range(CHOICES):
        events.append(ChoiceFinished(choice, rng.choice(list(FinishReason)), ""))
    events.append(Finished(Usage(5, 2, 3, 4, 0.0, 0.0), ()))
    return events


def options(ident: str, **fields: Any) -> ResponseOptions:
    known: dict[str, Any] = {"n": CHOICES, "drawn": CHOICES, "logprobs": False, "usage": True}
    shown = {"token_ids": False, "custom": frozenset({"edit"})}
    return ResponseOptions(ident, 7, "m", "fp_1", **{**known, **shown, **fields})


def encoders(store: Kept, **fields: Any) -> tuple[KeptCompletion, WholeEncoder, KeptChunks]:
    kept = KeptCompletion(store, OURS, BODY)  # type: ignore[arg-type]
    asked = options(kept.id, **fields)
    whole = WholeEncoder(CHAT, asked, [RESOLVED])
    return kept, whole, KeptChunks(ChunkEncoder(CHAT, asked, [RESOLVED]), whole, kept)


def added_up(data: bytes) -> dict[str, Any]:
    """Return what a client makes of chunks."""
    *lines, done = data.decode().split("\n\n")[:-1]
    assert done == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    body = {name: chunks[0][name] for name in ("id", "created", "model", "system_fingerprint")}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        body["usage"] = chunk["usage"]
        for choice in chunk["choices"]:
            known = choices.setdefault(choice["index"], {"message": {}, "logprobs": []})
            known["logprobs"] += (choice["logprobs"] or {"content": []})["content"]
            add(known["message"], choice["delta"])
            if choice["finish_reason"] is not None:
                known["finish_reason"] = choice["finish_reason"]
                known["stop_reason"] = choice["stop_reason"]
    return body | {"choices": [choices[index] for index in sorted(choices)]}


def add(known: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value:
                calls = known.setdefault(name, {})
                add(calls.setdefault(call["index"], {}), call)
        elif isinstance(value, dict):
            add(known.setdefault(name, {}), value)
        elif isinstance(value, str) and name not in ("id", "type", "role"):
            known[name] = (known.get(name) or "") + value
        else:
            known[name] = value


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """Return a stored body in the shape of `added_up`."""
    choices = []
    for choice in body["choices"]:
        message = choice["message"]
        assert message.pop("refusal") is None
        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        if "tool_calls" in message:
            message["tool_calls"] = dict(enumerate(message["tool_calls"]))
        message["content"] = message["content"] or None
        logprobs = choice["logprobs"] or {"content": []}
        reasons = {name: choice[name] for name in ("finish_reason", "stop_reason")}
        choices.append({"message": message, "logprobs": logprobs["content"], **reasons})
    names = ("id", "created", "model", "system_fingerprint", "usage")
    return {name: body[name] for name in names} | {"choices": choices}


@pytest.mark.parametrize(("logprobs", "streams"), [(False, 500), (True, 100)])
async def test_a_stream_is_stored_as_its_chunks_add_up_and_as_a_whole_answer(
    logprobs: bool, streams: int
) -> None:
    for seed in range(streams):
        store = Kept()
        events = events_of(random.Random(seed))
        kept, collected, chunks = encoders(store, logprobs=logprobs)
        whole = WholeEncoder(CHAT, options(kept.id, logprobs=logprobs), [RESOLVED])
        data = b""
        for event in events:
            data += chunks.take(0, event)
            whole.take(0, event)
        await kept.keep(collected)
        data += chunks.end()
        (stored,) = store
        body = json.loads(stored.body)
        assert body == json.loads(json.dumps(whole.body()))
        found = added_up(data)
        for choice in found["choices"]:
            choice["message"]["content"] = choice["message"].get("content") or None
        assert found == comparable(body), seed
        assert (stored.model, stored.metadata) == ("m", {"a": "b"})
        assert json.loads(stored.messages) == [{"role": "user", "content": "hi"}]


async def test_a_stream_that_failed_is_not_stored() -> None:
    store = Kept()
    kept, collected, chunks = encoders(store)
    for event in events_of(random.Random(1))[:5]:
        chunks.take(0, event)
    assert b'"error"' in chunks.failed(BatonError(Reason.INTERNAL, "it broke"))
    await kept.keep(collected)
    assert store == []
