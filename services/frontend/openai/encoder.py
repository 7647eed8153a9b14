"""Completions in JSON: whole, and as chunks of a stream.

Choices are numbered through all prompts of a body: prompt by prompt, n each.
"""

from collections.abc import Sequence
from typing import Any

from baton.stream_events import ChoiceFinished, Delta, Event, Finished
from services.frontend.http.responses import DONE, encode
from services.frontend.openai.logprobs import Logprobs
from services.frontend.openai.response import ResponseOptions, UsageSum
from services.frontend.openai.templates import Template
from services.frontend.requests.request import ResolvedRequest


class WholeEncoder:
    """Collects the events of all prompts of a body into one response."""

    def __init__(
        self, template: Template, options: ResponseOptions, requests: Sequence[ResolvedRequest]
    ) -> None:
        self._template = template
        self._options = options
        self._requests = requests
        self._choices = [
            _Choice(template, request) for request in requests for _ in range(options.n)
        ]
        self._usage = UsageSum()

    def take(self, prompt: int, event: Event) -> None:
        """Add an event of a prompt, by its index."""
        match event:
            case Delta():
                choice = self._choices[prompt * self._options.n + event.choice]
                choice.texts.append(event.text)
                choice.token_ids.extend(event.token_ids)
                if self._options.logprobs:
                    choice.add_logprobs(event)
            case ChoiceFinished():
                choice = self._choices[prompt * self._options.n + event.choice]
                choice.finish_reason = event.reason.value
            case Finished():
                self._usage.add(event.usage)

    def body(self) -> dict[str, Any]:
        """Return the response to all events so far."""
        options = self._options
        body = {
            "id": options.id,
            "object": self._template.object,
            "created": options.created,
            "model": options.model,
            "choices": [self._entry(index, choice) for index, choice in enumerate(self._choices)],
            "usage": self._usage.body(),
        }
        if not options.exact_continuation:
            body["exact_continuation"] = False
        if options.token_ids and not self._template.prompt_ids_in_choice:
            body["prompt_token_ids"] = self._requests[0].prompt
        return body

    def _entry(self, index: int, choice: "_Choice") -> dict[str, Any]:
        entry = {
            "index": index,
            **self._template.message("".join(choice.texts)),
            "logprobs": choice.logprobs if self._options.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if self._options.token_ids:
            entry["token_ids"] = choice.token_ids
            if self._template.prompt_ids_in_choice:
                entry["prompt_token_ids"] = self._requests[index // self._options.n].prompt
        return entry


class _Choice:
    def __init__(self, template: Template, request: ResolvedRequest) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.finish_reason = ""
        self._counter = template.logprobs(request.model.tokenizer)
        self.logprobs = self._counter.take((), ())

    def add_logprobs(self, delta: Delta) -> None:
        for name, values in self._counter.take(delta.token_ids, delta.logprobs).items():
            self.logprobs[name].extend(values)


class ChunkEncoder:
    """Encodes the events of all prompts of a body as server-sent events, one by one.

    A delta that is nothing but text, by far the most of all events, is three pieces of bytes around
    its encoded text.
    """

    def __init__(
        self, template: Template, options: ResponseOptions, requests: Sequence[ResolvedRequest]
    ) -> None:
        total = options.n * len(requests)
        self._template = template
        self._options = options
        self._requests = requests
        self._n = options.n
        self._usage = UsageSum()
        self._tail = b',"usage":null}\n\n' if options.usage else b"}\n\n"
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,%b"choices":[' % (
            encode(options.id),
            encode(template.chunk_object),
            options.created,
            encode(options.model),
            b"" if options.exact_continuation else b'"exact_continuation":false,',
        )
        self._text_heads = [
            b'%b{"index":%d,%b' % (self._head, index, template.text_before)
            for index in range(total)
        ]
        self._text_tail = (
            template.text_after + b',"logprobs":null,"finish_reason":null}]' + self._tail
        )
        self._plain = not (options.logprobs or options.token_ids)
        self._logprobs: list[Logprobs] = []
        if options.logprobs:
            self._logprobs = [template.logprobs(requests[0].model.tokenizer) for _ in range(total)]
        self._total = total
        self._unopened = set(range(total))
        """Choices that have had no chunk, where the first one is special."""
        if template.opening is None and not options.token_ids:
            self._unopened.clear()

    def take(self, prompt: int, event: Event) -> bytes:
        """Return the chunks of an event of a prompt, by its index; may be none."""
        if type(event) is Delta:
            index = prompt * self._n + event.choice
            if not self._plain:
                return self._rich(index, event)
            text = event.text
            if not text:
                return b""
            chunk = self._text_heads[index] + encode(text) + self._text_tail
            return self._opening(index) + chunk if index in self._unopened else chunk
        if type(event) is ChoiceFinished:
            index = prompt * self._n + event.choice
            last = self._chunk(index, self._template.last_delta, event.reason.value)
            return self._opening(index) + last
        if type(event) is Finished:
            self._usage.add(event.usage)
        return b""

    def end(self) -> bytes:
        """Return the last events of the stream."""
        if not self._options.usage:
            return DONE
        return self._head + b'],"usage":' + encode(self._usage.body()) + b"}\n\n" + DONE

    def _opening(self, index: int) -> bytes:
        """Return the chunk that comes before all others of a choice, if there is one."""
        opening = self._template.opening
        if opening is None or index not in self._unopened:
            return b""
        beside = b""
        if self._options.token_ids and len(self._unopened) == self._total:
            beside = b',"prompt_token_ids":' + encode(self._requests[0].prompt)
        self._unopened.discard(index)
        return self._chunk(index, opening, beside=beside)

    def _rich(self, index: int, delta: Delta) -> bytes:
        """Return the chunk of a delta that is more than text."""
        opening, logprobs = self._opening(index), None
        more: dict[str, Any] = {}
        if self._options.logprobs:
            logprobs = self._logprobs[index].take(delta.token_ids, delta.logprobs)
        if self._options.token_ids:
            more["token_ids"] = delta.token_ids
            if index in self._unopened:
                self._unopened.discard(index)
                more["prompt_token_ids"] = self._requests[index // self._n].prompt
        content = self._template.delta(delta.text)
        return opening + self._chunk(index, content, logprobs=logprobs, more=more)

    def _chunk(
        self,
        index: int,
        content: dict[str, Any],
        finish_reason: str | None = None,
        *,
        logprobs: Any = None,
        more: dict[str, Any] | None = None,
        beside: bytes = b"",
    ) -> bytes:
        entry = {
            "index": index,
            **content,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            **(more or {}),
        }
        return self._head + encode(entry) + b"]" + beside + self._tail
