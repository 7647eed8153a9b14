"""Chat completions: `chat.completion`, and its chunks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from services.frontend.generation.events import ChoiceFinished, Delta, Event, Finished, Started
from services.frontend.http.responses import DONE, encode
from services.frontend.openai.logprobs import chat_logprobs
from services.frontend.openai.response import FINISH_REASONS, ResponseOptions, UsageSum
from services.frontend.requests.request import ResolvedRequest

_NO_MORE: Mapping[str, Any] = MappingProxyType({})


class ChatAnswer:
    """Collects a whole answer."""

    def __init__(self, options: ResponseOptions, requests: list[ResolvedRequest]) -> None:
        self._options = options
        self._request = requests[0]
        self._texts: list[list[str]] = [[] for _ in range(options.n)]
        self._logprobs: list[list[dict[str, Any]]] = [[] for _ in range(options.n)]
        self._token_ids: list[list[int]] = [[] for _ in range(options.n)]
        self._reasons = [""] * options.n
        self._usage = UsageSum()

    def take(self, prompt: int, event: Event) -> None:  # noqa: ARG002 - a chat is one prompt
        """What happened next."""
        match event:
            case Delta():
                self._texts[event.choice].append(event.text)
                self._token_ids[event.choice].extend(event.token_ids)
                if self._options.logprobs:
                    tokenizer = self._request.model.tokenizer
                    entries = chat_logprobs(tokenizer, event.token_ids, event.logprobs)
                    self._logprobs[event.choice].extend(entries)
            case ChoiceFinished():
                self._reasons[event.choice] = FINISH_REASONS[event.reason]
            case Finished():
                self._usage.add(event.usage)

    def body(self) -> dict[str, Any]:
        """The answer."""
        options = self._options
        body = {
            "id": options.id,
            "object": "chat.completion",
            "created": options.created,
            "model": options.model,
            "choices": [self._choice(index) for index in range(options.n)],
            "usage": self._usage.body(),
        }
        if options.token_ids:
            body["prompt_token_ids"] = self._request.prompt
        return body

    def _choice(self, index: int) -> dict[str, Any]:
        content = "".join(self._texts[index])
        choice = {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": {"content": self._logprobs[index]} if self._options.logprobs else None,
            "finish_reason": self._reasons[index],
        }
        if self._options.token_ids:
            choice["token_ids"] = self._token_ids[index]
        return choice


class ChatChunks:
    """Encodes a stream, event by event."""

    def __init__(self, options: ResponseOptions, requests: list[ResolvedRequest]) -> None:
        self._options = options
        self._request = requests[0]
        self._usage = UsageSum()
        self._tail = b',"usage":null}\n\n' if options.usage else b"}\n\n"
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (encode(options.id), options.created, encode(options.model))
        )
        # Around the text of a delta that has nothing else: by far the most of all chunks.
        self._text_heads = [
            self._head + b'{"index":%d,"delta":{"content":' % index for index in range(options.n)
        ]
        self._text_tail = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        self._plain = not (options.logprobs or options.token_ids)
        self._silent = set(range(options.n))

    def take(self, prompt: int, event: Event) -> bytes:  # noqa: ARG002 - a chat is one prompt
        """The events that tell what happened next; may be none."""
        match event:
            case Delta():
                if self._plain:
                    if not event.text:
                        return b""
                    head = self._text_heads[event.choice]
                    chunk = head + encode(event.text) + self._text_tail
                else:
                    chunk = self._rich(event)
                if event.choice in self._silent:
                    return self._role(event.choice) + chunk
                return chunk
            case ChoiceFinished():
                first = self._role(event.choice) if event.choice in self._silent else b""
                reason = FINISH_REASONS[event.reason]
                return first + self._chunk(event.choice, {}, finish_reason=reason)
            case Finished():
                self._usage.add(event.usage)
                return b""
            case Started():
                return b""

    def end(self) -> bytes:
        """The last events."""
        if not self._options.usage:
            return DONE
        return self._head + b'],"usage":' + encode(self._usage.body()) + b"}\n\n" + DONE

    def _role(self, choice: int) -> bytes:
        first = len(self._silent) == self._options.n
        self._silent.discard(choice)
        extra = b""
        if first and self._options.token_ids:
            extra = b',"prompt_token_ids":' + encode(self._request.prompt)
        return self._chunk(choice, {"role": "assistant", "content": ""}, extra=extra)

    def _rich(self, delta: Delta) -> bytes:
        options, logprobs = self._options, None
        if options.logprobs:
            tokenizer = self._request.model.tokenizer
            entries = chat_logprobs(tokenizer, delta.token_ids, delta.logprobs)
            logprobs = {"content": entries}
        more = {"token_ids": delta.token_ids} if options.token_ids else _NO_MORE
        return self._chunk(delta.choice, {"content": delta.text}, logprobs=logprobs, more=more)

    def _chunk(
        self,
        choice: int,
        delta: dict[str, Any],
        *,
        logprobs: Any = None,
        finish_reason: str | None = None,
        extra: bytes = b"",
        more: Mapping[str, Any] = _NO_MORE,
    ) -> bytes:
        entry = {
            "index": choice,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            **more,
        }
        return self._head + encode(entry) + b"]" + extra + self._tail
