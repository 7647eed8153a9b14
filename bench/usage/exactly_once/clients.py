"""Clients that record the usage reported to them."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from baton.client import AsyncClient
from baton.client.errors import ApiError, BatonClientError
from baton.request.stream_events import ChoiceFinished, Delta, Finished
from bench.usage.exactly_once.asks import DEADLINE_SECONDS, Ask

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Told:
    """The end of a response."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reasons: tuple[str, ...]
    """By choice, those of the first prompt first."""


@dataclass
class Seen:
    """Results of the client of one request."""

    ask: Ask
    frontend: tuple[str, int]
    """The frontend's id, and the number of its start."""
    told: Told | None = None
    """Whether it received the end."""
    tokens: int = 0
    """The least number of output tokens that it received."""
    refused: bool = False
    """Whether it was rejected before anything ran: an error about the request."""
    error: str = ""
    """Why it received no end."""
    reasons: dict[int, str] = field(default_factory=dict)


class Clients:
    """Clients of one frontend, one per key."""

    def __init__(self, grpc: str, http: str, secrets: list[str]) -> None:
        self._secrets = secrets
        self._grpc = [
            AsyncClient(grpc, timeout=TIMEOUT_SECONDS, retries=0, api_key=one) for one in secrets
        ]
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(base_url=http, timeout=TIMEOUT_SECONDS, limits=limits)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(self._http.aclose(), *(one.close() for one in self._grpc))

    async def ask(self, seen: Seen, key: int) -> None:
        """Send a request, and record the response in `seen`."""
        if seen.ask.api == "grpc":
            await self._over_grpc(seen, self._grpc[key])
        else:
            try:
                await self._over_http(seen, self._secrets[key])
            except httpx.TransportError as error:
                seen.error = type(error).__name__

    async def _over_grpc(self, seen: Seen, client: AsyncClient) -> None:
        ask = seen.ask
        options: dict[str, Any] = {
            "model": ask.model,
            "request_id": ask.id,
            "n": ask.n,
            "max_tokens": ask.max_tokens,
            "ignore_eos": ask.ignore_eos,
            "seed": 1,
        }
        if ask.kind == "deadline":
            options["timeout"] = DEADLINE_SECONDS
        stream = (
            client.chat(ask.text, **options)
            if ask.chat
            else client.generate(ask.prompts[0], **options)
        )
        events = 0
        try:
            async with stream:
                async for event in stream:
                    if isinstance(event, Delta):
                        seen.tokens += len(event.token_ids)
                        events += 1
                        if ask.kind == "cancel" and events == (ask.leaves_after or 1):
                            seen.error = "left"
                            return
                    elif isinstance(event, ChoiceFinished):
                        seen.reasons[event.choice] = event.reason.value
                    elif isinstance(event, Finished):
                        _note_end(
                            seen,
                            event.usage.prompt_tokens,
                            event.usage.cached_tokens,
                            event.usage.output_tokens,
                        )
        except ApiError as error:
            seen.error = error.reason
            seen.refused = error.reason in _REFUSALS
        except BatonClientError as error:
            seen.error = type(error).__name__

    async def _over_http(self, seen: Seen, secret: str) -> None:
        ask = seen.ask
        body: dict[str, Any] = {
            "model": ask.model,
            "n": ask.n,
            "max_tokens": ask.max_tokens,
            "ignore_eos": ask.ignore_eos,
        }
        if ask.chat:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": ask.text}]
        else:
            path, body["prompt"] = "/v1/completions", [list(one) for one in ask.prompts]
        headers = {"x-request-id": ask.id, "authorization": f"Bearer {secret}"}
        if ask.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            reading = self._http.stream("POST", path, json=body, headers=headers)
            async with reading as answer:
                await _read_stream(seen, answer)
            return
        asking = asyncio.create_task(self._http.post(path, json=body, headers=headers))
        if ask.kind == "cancel":
            await asyncio.wait([asking], timeout=ask.leaves_seconds)
            if not asking.done():
                asking.cancel()
                with suppress(asyncio.CancelledError, httpx.TransportError):
                    await asking
                seen.error = "left"
                return
        answer = await asking
        if answer.status_code != 200:
            _note_error(seen, answer.json()["error"], answer.status_code)
            return
        found = answer.json()
        seen.reasons = {one["index"]: one["finish_reason"] for one in found["choices"]}
        _note_usage(seen, found["usage"])


_REFUSALS = frozenset(
    {
        "INVALID_FIELD",
        "CONTEXT_LENGTH_EXCEEDED",
        "UNSUPPORTED_PARAMETER",
        "INVALID_API_KEY",
        "MODEL_NOT_FOUND",
        "RATE_LIMITED",
    }
)


async def _read_stream(seen: Seen, answer: httpx.Response) -> None:
    ask, events = seen.ask, 0
    if answer.status_code != 200:
        _note_error(seen, json.loads(await answer.aread())["error"], answer.status_code)
        return
    async for line in answer.aiter_lines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            _note_error(seen, event["error"], 0)
            return
        for choice in event["choices"]:
            if choice.get("delta", {}).get("content") or choice.get("text"):
                seen.tokens += 1  # an event has at least one token
                events += 1
            if choice.get("finish_reason"):
                seen.reasons[choice["index"]] = choice["finish_reason"]
        if event.get("usage"):
            _note_usage(seen, event["usage"])
        elif ask.kind == "cancel" and events >= (ask.leaves_after or 1):
            seen.error = "left"
            return
    if seen.told is None:
        seen.error = seen.error or "cut"


def _note_error(seen: Seen, error: Any, status: int) -> None:
    seen.error = f"{status} {error['code']}"
    seen.refused = status in (400, 401, 403, 404) or error["code"] == "rate_limit_exceeded"


def _note_usage(seen: Seen, usage: Any) -> None:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    _note_end(seen, usage["prompt_tokens"], cached, usage["completion_tokens"])


def _note_end(seen: Seen, prompt: int, cached: int, output: int) -> None:
    reasons = tuple(seen.reasons[index] for index in sorted(seen.reasons))
    seen.told = Told(prompt, cached, output, reasons)
