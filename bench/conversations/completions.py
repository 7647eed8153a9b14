"""Clients that store chat completions, and read each at any frontend."""

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from baton.conversations.completions.store import CompletionStore
from baton.errors import BatonError, Reason
from bench.conversations.turns import MAX_OUTPUT_TOKENS, SeenTurn, TurnClient


class CompletionClient(TurnClient):
    """A client whose turns are chat completions, each stored and read at once.

    Arguments are those of `TurnClient`; it names no conversation, and streams nothing.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named | {"managed": False, "stream": False})
        self.stored: dict[str, str] = {}
        """What it was answered, by the ids of the completions."""

    async def turn(self, http: httpx.AsyncClient) -> None:
        """Store a completion, and read it."""
        request = f"{self.name}-{len(self.requests)}"
        self.requests.append(request)
        messages = [{"role": "user", "content": f"{request}: tell me more about it"}]
        body = {"model": self.model, "messages": messages, "store": True}
        body |= {"max_completion_tokens": MAX_OUTPUT_TOKENS, "metadata": {"client": self.name}}
        found = await self.send(http, "POST", "/v1/chat/completions", body, request)
        if found is None:
            return
        text, usage = found["choices"][0]["message"]["content"], found["usage"]
        self.stored[found["id"]] = text
        self.seen.append(
            SeenTurn(
                request,
                messages[0]["content"],
                text,
                usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"],
            )
        )
        read = await self.send(http, "GET", f"/v1/chat/completions/{found['id']}")
        if read is not None and _text(read) != text:
            self.errors.wrong.append(f"{request}: told {text!r}, read {_text(read)!r}")


async def lost_completions(store: CompletionStore, client: CompletionClient) -> Sequence[str]:
    """Return what is not stored as a client was answered."""
    problems = []
    for ident, text in client.stored.items():
        try:
            found = await store.get(client.scope, ident)
        except BatonError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            problems.append(f"{client.name}: {ident} is not stored")
            continue
        if (kept := _text(msgspec.json.decode(found.body))) != text:
            problems.append(f"{client.name}: told {text!r}, stored {kept!r}")
    return problems


def _text(body: dict[str, Any]) -> str:
    content: str = body["choices"][0]["message"]["content"]
    return content
