"""Clients that continue one conversation each, at any frontend, and what they saw of it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from baton.conversations.records import StateScope

RETRY_SECONDS = 0.1
MAX_OUTPUT_TOKENS = 16
_AT_ONCE_TOKENS = 128
"""Turns at once last longer than it takes to send them."""
_RETRIED = (409, 503)
"""What a client may be answered while something is away, or another turn runs."""


@dataclass(frozen=True)
class SeenTurn:
    """A turn whose end a client received."""

    request: str
    """Its request ID."""
    given: str
    """Text of the input."""
    output: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass
class Errors:
    """What clients were told other than the end of a response."""

    retried: Counter[str] = field(default_factory=Counter)
    """By status and code, errors after which a client sends the turn again."""
    wrong: list[str] = field(default_factory=list)
    """Errors that no fault explains."""
    cut: int = 0
    """Connections that broke during a response."""


class TurnClient:
    """A client that continues a conversation, one turn after the other, until it has all turns.

    Args:
        name: of the conversation, unique; texts and request IDs begin with it.
        url: returns the base URL of a frontend.
        model: the model.
        scope: whose the conversation is.
        secret: the API key; empty: none.
        managed: whether it names a conversation; otherwise it continues its last response.
        stream: whether responses are streamed.
        retry_seconds: time between two attempts.
        errors: where it notes errors.
    """

    def __init__(
        self,
        name: str,
        url: Callable[[], str],
        model: str,
        scope: StateScope,
        errors: Errors,
        *,
        secret: str = "",
        managed: bool = False,
        stream: bool = False,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.name = name
        self.scope = scope
        self.managed = managed
        self.errors = errors
        self.last = ""
        """ID of the last response that it saw whole, or of its conversation."""
        self.seen: list[SeenTurn] = []
        self.unclear: list[str] = []
        """Inputs of attempts whose end it did not see: each may be a turn or none."""
        self.requests: list[str] = []
        """Request IDs of all attempts."""
        self._url = url
        self.model = model
        self._stream = stream
        self._retry_seconds = retry_seconds
        self.headers = {"authorization": f"Bearer {secret}"} if secret else {}
        """Of each of its requests."""

    async def begin(self, http: httpx.AsyncClient) -> None:
        """Create its conversation, if it names one."""
        while self.managed and not self.last:
            found = await self.send(http, "POST", "/v1/conversations", {})
            if found is not None:
                self.last = found["id"]
            else:
                await asyncio.sleep(self._retry_seconds)

    async def turn(self, http: httpx.AsyncClient) -> None:
        """Send the next turn until its end is received."""
        count = len(self.seen)
        while len(self.seen) == count:
            request = f"{self.name}-{count}-{len(self.requests)}"
            text = f"{request}: tell me more about it"
            self.requests.append(request)
            body = self._body(text)
            found = await self.send(http, "POST", "/v1/responses", body, request)
            if found is None or found["status"] not in ("completed", "incomplete"):
                self.unclear.append(text)
                await asyncio.sleep(self._retry_seconds)
                continue
            if not self.managed:
                self.last = found["id"]
            usage = found["usage"]
            self.seen.append(
                SeenTurn(
                    request,
                    text,
                    text_of_item(found["output"][-1]),
                    usage["input_tokens"],
                    usage["input_tokens_details"]["cached_tokens"],
                    usage["output_tokens"],
                )
            )

    async def one_of(self, http: httpx.AsyncClient, count: int) -> list[int]:
        """Send turns at once; return their statuses. One may move the conversation on."""
        assert self.managed

        async def attempt(number: int) -> int:
            request = f"{self.name}-at-once-{number}"
            body = self._body(request) | {"stream": False, "max_output_tokens": _AT_ONCE_TOKENS}
            url = f"{self._url()}/v1/responses"
            headers = self.headers | {"x-request-id": request}
            return (await http.post(url, json=body, headers=headers)).status_code

        return list(await asyncio.gather(*map(attempt, range(count))))

    def _body(self, text: str) -> dict[str, Any]:
        before = "conversation" if self.managed else "previous_response_id"
        body: dict[str, Any] = {"model": self.model, "input": text, "stream": self._stream}
        body |= {"max_output_tokens": MAX_OUTPUT_TOKENS}
        return body | ({before: self.last} if self.last else {})

    async def send(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        request: str = "",
    ) -> dict[str, Any] | None:
        """Return what a frontend responded in the end; None: an error, or less, which is noted."""
        headers = self.headers | ({"x-request-id": request} if request else {})
        try:
            async with http.stream(
                method, f"{self._url()}{path}", json=body, headers=headers
            ) as answer:
                if answer.status_code != 200:
                    self._note(answer.status_code, json.loads(await answer.aread()), request)
                    return None
                if not (body or {}).get("stream"):
                    found: dict[str, Any] = json.loads(await answer.aread())
                    return found
                return await self._last_event(answer)
        except httpx.TransportError:
            self.errors.cut += 1
        except AttributeError as error:
            if "getpeername" not in str(error):  # anyio's, of a connection that broke at once
                raise
            self.errors.cut += 1
        return None

    async def _last_event(self, answer: httpx.Response) -> dict[str, Any] | None:
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event["type"] in ("response.completed", "response.incomplete"):
                found: dict[str, Any] = event["response"]
                return found
            if event["type"] == "response.failed":
                self.errors.retried[f"failed {event['response']['error']['code']}"] += 1
                return None
        self.errors.cut += 1
        return None

    def _note(self, status: int, body: dict[str, Any], request: str) -> None:
        error = body["error"]
        if status in _RETRIED:
            self.errors.retried[f"{status} {error['code']}"] += 1
        else:
            self.errors.wrong.append(f"{request}: {status} {error['message']}")


def text_of_item(item: dict[str, Any]) -> str:
    """Return the text of a message."""
    return "".join(part["text"] for part in item["content"])
