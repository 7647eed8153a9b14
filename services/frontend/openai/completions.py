"""Text completions: `text_completion`, whole and in chunks.

Choices are numbered through all prompts of a body: prompt by prompt, n each.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from services.frontend.generation.events import ChoiceFinished, Delta, Event, Finished, Started
from services.frontend.http.responses import DONE, encode
from services.frontend.openai.logprobs import CompletionLogprobs
from services.frontend.openai.response import FINISH_REASONS, ResponseOptions, UsageSum
from services.frontend.requests.request import ResolvedRequest

_NO_MORE: Mapping[str, Any] = MappingProxyType({})


class CompletionAnswer:
    """Collects a whole answer."""

    def __init__(self, options: ResponseOptions, requests: list[ResolvedRequest]) -> None:
        total = options.n * len(requests)
        self._options = options
        self._requests = requests
        self._texts: list[list[str]] = [[] for _ in range(total)]
        self._logprobs: list[dict[str, list[Any]]] = [
            {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
            for _ in range(total)
        ]
        self._counters = [CompletionLogprobs(requests[0].model.tokenizer) for _ in range(total)]
        self._token_ids: list[list[int]] = [[] for _ in range(total)]
        self._reasons = [""] * total
        self._usage = UsageSum()

    def take(self, prompt: int, event: Event) -> None:
        """What happened next to a prompt."""
        match event:
            case Delta():
                index = prompt * self._options.n + event.choice
                self._texts[index].append(event.text)
                self._token_ids[index].extend(event.token_ids)
                if self._options.logprobs:
                    new = self._counters[index].take(event.token_ids, event.logprobs)
                    for name, values in new.items():
                        self._logprobs[index][name].extend(values)
            case ChoiceFinished():
                index = prompt * self._options.n + event.choice
                self._reasons[index] = FINISH_REASONS[event.reason]
            case Finished():
                self._usage.add(event.usage)

    def body(self) -> dict[str, Any]:
        """The answer."""
        options = self._options
        return {
            "id": options.id,
            "object": "text_completion",
            "created": options.created,
            "model": options.model,
            "choices": [self._choice(index) for index in range(len(self._texts))],
            "usage": self._usage.body(),
        }

    def _choice(self, index: int) -> dict[str, Any]:
        choice = {
            "index": index,
            "text": "".join(self._texts[index]),
            "logprobs": self._logprobs[index] if self._options.logprobs else None,
            "finish_reason": self._reasons[index],
        }
        if self._options.token_ids:
            choice["token_ids"] = self._token_ids[index]
            choice["prompt_token_ids"] = self._requests[index // self._options.n].prompt
        return choice


class CompletionChunks:
    """Encodes a stream, event by event."""

    def __init__(self, options: ResponseOptions, requests: list[ResolvedRequest]) -> None:
        total = options.n * len(requests)
        self._options = options
        self._requests = requests
        self._usage = UsageSum()
        self._tail = b',"usage":null}\n\n' if options.usage else b"}\n\n"
        self._head = (
            b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":['
            % (encode(options.id), options.created, encode(options.model))
        )
        # Around the text of a delta that has nothing else: by far the most of all chunks.
        self._text_heads = [self._head + b'{"index":%d,"text":' % index for index in range(total)]
        self._text_tail = b',"logprobs":null,"finish_reason":null}]' + self._tail
        self._plain = not (options.logprobs or options.token_ids)
        self._counters = [CompletionLogprobs(requests[0].model.tokenizer) for _ in range(total)]
        self._silent = set(range(total))

    def take(self, prompt: int, event: Event) -> bytes:
        """The events that tell what happened next to a prompt; may be none."""
        match event:
            case Delta():
                index = prompt * self._options.n + event.choice
                if not self._plain:
                    return self._rich(index, event)
                if not event.text:
                    return b""
                return self._text_heads[index] + encode(event.text) + self._text_tail
            case ChoiceFinished():
                index = prompt * self._options.n + event.choice
                return self._chunk(index, "", finish_reason=FINISH_REASONS[event.reason])
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

    def _rich(self, index: int, delta: Delta) -> bytes:
        options, logprobs = self._options, None
        more: dict[str, Any] = {}
        if options.logprobs:
            logprobs = self._counters[index].take(delta.token_ids, delta.logprobs)
        if options.token_ids:
            more["token_ids"] = delta.token_ids
            if index in self._silent:
                self._silent.discard(index)
                more["prompt_token_ids"] = self._requests[index // options.n].prompt
        return self._chunk(index, delta.text, logprobs=logprobs, more=more)

    def _chunk(
        self,
        index: int,
        text: str,
        *,
        logprobs: Any = None,
        finish_reason: str | None = None,
        more: Mapping[str, Any] = _NO_MORE,
    ) -> bytes:
        entry = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            **more,
        }
        return self._head + encode(entry) + b"]" + self._tail
