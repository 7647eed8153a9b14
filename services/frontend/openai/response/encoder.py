"""Completions in JSON: whole, and as chunks of a stream.

Choices are numbered across all prompts of a body: prompt by prompt, n each.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from baton.errors import BatonError
from baton.request.stream_events import (
    CallBegun,
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    PromptLogprobs,
    TokenLogprob,
)
from services.frontend.http.responses import DONE, encode_line, error_event
from services.frontend.openai.response.logprobs import Logprobs, prompt_logprobs
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.parts import AnswerParts, DeltaParts, reason_of
from services.frontend.openai.response.templates import Template
from services.frontend.openai.response.usage import UsageSum, usage_body
from services.frontend.requests.request import ResolvedRequest


class WholeEncoder:
    """Collects the events of all prompts of a body into one response."""

    def __init__(
        self, template: Template, options: ResponseOptions, requests: Sequence[ResolvedRequest]
    ) -> None:
        self._template = template
        self._options = options
        self._requests = requests
        self._choices = [_Choice() for _ in requests for _ in range(options.drawn)]
        self._prompt_logprobs: list[list[TokenLogprob]] = [[] for _ in requests]
        self._usage = UsageSum()

    def take(self, prompt: int, event: Event) -> None:
        """Add an event of a prompt, by its index."""
        match event:
            case Delta():
                choice = self._choices[prompt * self._options.drawn + event.choice]
                choice.texts.append(event.text)
                choice.token_ids.extend(event.token_ids)
                choice.logprobs.extend(event.logprobs)
                choice.parts.add(event.parts)
            case ChoiceFinished():
                choice = self._choices[prompt * self._options.drawn + event.choice]
                choice.finished = event
            case PromptLogprobs():
                self._prompt_logprobs[prompt].extend(event.entries)
            case Finished():
                self._usage.add(event.usage)

    def body(self) -> dict[str, Any]:
        """Return the response for all events so far."""
        options = self._options
        body = {
            "id": options.id,
            "object": self._template.object,
            "created": options.created,
            "model": options.model,
            "system_fingerprint": options.fingerprint,
            "choices": [self._entry(index, choice) for index, choice in enumerate(self._chosen())],
            "usage": self._usage.body(),
        }
        if options.service_tier:
            body["service_tier"] = options.service_tier
        if not options.exact_continuation:
            body["exact_continuation"] = False
        if options.requested_model:
            body["baton"] = {"requested_model": options.requested_model}
        if options.token_ids and not self._template.prompt_ids_in_choice:
            body["prompt_token_ids"] = self._requests[0].prompt
        if options.prompt_logprobs and not self._template.prompt_ids_in_choice:
            body["prompt_logprobs"] = self._of_prompt(0)
        return body

    def _chosen(self) -> list["_Choice"]:
        """Return the choices to deliver: all, or the likeliest of each prompt."""
        given, drawn = self._options.n, self._options.drawn
        if drawn == given:
            return self._choices
        chosen: list[_Choice] = []
        for at in range(0, len(self._choices), drawn):
            of_prompt = self._choices[at : at + drawn]
            chosen += sorted(of_prompt, key=_Choice.mean_logprob, reverse=True)[:given]
        return chosen

    def _entry(self, index: int, choice: "_Choice") -> dict[str, Any]:
        options, prompt = self._options, index // self._options.n
        request = self._requests[prompt]
        text = "".join([*options.echo[prompt : prompt + 1], *choice.texts])
        finished = choice.finished
        entry = {
            "index": index,
            **self._template.message(text),
            "logprobs": None,
            "finish_reason": "" if finished is None else reason_of(finished, options),
            "stop_reason": None if finished is None else stop_reason(finished),
        }
        if "message" in entry:
            choice.parts.add_to(entry["message"], options)
        if options.logprobs:
            begin = sum(map(len, options.echo[prompt : prompt + 1]))
            counter = self._template.logprobs(request, as_ids=options.tokens_as_ids, begin=begin)
            entry["logprobs"] = counter.take(choice.token_ids, choice.logprobs)
            if options.echo_logprobs:
                entries = (None, *self._prompt_logprobs[prompt])
                echoed = counter.take(request.prompt, entries, options.echo_offsets[prompt])
                for name, of_output in entry["logprobs"].items():
                    entry["logprobs"][name] = echoed[name] + of_output
            if "text_offset" in entry["logprobs"]:  # a stop string's tokens have no text
                offsets = entry["logprobs"]["text_offset"]
                entry["logprobs"]["text_offset"] = [min(one, len(text)) for one in offsets]
        if options.token_ids:
            entry["token_ids"] = choice.token_ids
            if self._template.prompt_ids_in_choice:
                entry["prompt_token_ids"] = request.prompt
        if options.prompt_logprobs and self._template.prompt_ids_in_choice:
            entry["prompt_logprobs"] = self._of_prompt(prompt)
        return entry

    def _of_prompt(self, prompt: int) -> list[dict[str, Any] | None]:
        request = self._requests[prompt]
        entries = self._prompt_logprobs[prompt]
        return prompt_logprobs(request.prompt, entries, request.model.tokenizer)


class _Choice:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.parts = AnswerParts()
        self.finished: ChoiceFinished | None = None

    def mean_logprob(self) -> float:
        """Return the mean log probability of its tokens."""
        total = sum(entry.logprob for entry in self.logprobs)
        return total / max(1, len(self.logprobs))


def stop_reason(finished: ChoiceFinished) -> int | str | None:
    """Return the stop string or stop token of the request that ended a choice, if any."""
    return finished.stop_string or finished.stop_token_id


def _answering(options: ResponseOptions) -> bytes:
    """Return the fields of a chunk that say what answers, and how."""
    requested, tier = options.requested_model, options.service_tier
    return _answering_of(options.model, options.fingerprint, requested, tier)


@lru_cache(1024)
def _answering_of(model: str, fingerprint: str, requested: str, tier: str | None) -> bytes:
    line = b'"model":%b,"system_fingerprint":%b,' % (encode_line(model), encode_line(fingerprint))
    if tier:
        line += b'"service_tier":%b,' % encode_line(tier)
    if requested:
        line += b'"baton":%b,' % encode_line({"requested_model": requested})
    return line


class ChunkEncoder:
    """Encodes the events of all prompts of a body as server-sent events, one by one.

    A delta of plain text, by far the most frequent event, is three pieces of bytes around its
    encoded text.
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
        self._prompt_tokens = sum(len(request.prompt) for request in requests)
        self._output_tokens = 0
        self._prompt_logprobs: list[list[TokenLogprob]] = [[] for _ in requests]
        self._tail = b',"usage":null}\n\n' if options.usage else b"}\n\n"
        self._head = b'data: {"id":%b,"object":"%b","created":%d,%b%b"choices":[' % (
            encode_line(options.id),
            template.chunk_object.encode(),
            options.created,
            _answering(options),
            b"" if options.exact_continuation else b'"exact_continuation":false,',
        )
        self._text_heads = [
            b'%b{"index":%d,%b' % (self._head, index, template.text_before)
            for index in range(total)
        ]
        self._text_tail = (
            template.text_after + b',"logprobs":null,"finish_reason":null}]' + self._tail
        )
        self._plain = not (options.logprobs or options.token_ids or options.continuous_usage)
        self._logprobs: list[Logprobs] = []
        if options.logprobs:
            self._logprobs = [
                template.logprobs(
                    request,
                    as_ids=options.tokens_as_ids,
                    begin=sum(map(len, options.echo[prompt : prompt + 1])),
                )
                for prompt, request in enumerate(requests)
                for _ in range(options.n)
            ]
        self._total = total
        self._parts: dict[int, DeltaParts] = {}
        """Of choices that had other parts than text."""
        self._unopened = set(range(total))
        """Choices without a chunk yet, if the first one is special."""
        if template.opening is None and not options.token_ids and not options.echo:
            self._unopened.clear()

    def take(self, prompt: int, event: Event) -> bytes:
        """Return the chunks of an event of a prompt, by its index; may be empty."""
        if type(event) is Delta:
            index = prompt * self._n + event.choice
            if not self._plain:
                return self._rich(index, event)
            if event.parts:
                return self._of_parts(index, event)
            text = event.text
            if not text:
                return b""
            chunk = self._text_heads[index] + encode_line(text) + self._text_tail
            return self._opening(index) + chunk if index in self._unopened else chunk
        if type(event) is ChoiceFinished:
            index = prompt * self._n + event.choice
            opening = self._opening(index)
            more = {"stop_reason": stop_reason(event)}
            return opening + self._chunk(
                index, self._template.last_delta, reason_of(event, self._options), more=more
            )
        if type(event) is PromptLogprobs:
            self._prompt_logprobs[prompt].extend(event.entries)
            return b""
        if type(event) is Finished:
            self._usage.add(event.usage)
        return b""

    def end(self) -> bytes:
        """Return the last events of the stream."""
        if not self._options.usage:
            return DONE
        return self._head + b'],"usage":' + encode_line(self._usage.body()) + b"}\n\n" + DONE

    def failed(self, error: BatonError) -> bytes:
        """Return the last event of a stream that failed after it began."""
        return error_event(error)

    def _opening(self, index: int, *, text: bool = True) -> bytes:
        """Return the chunk that precedes all others of a choice, if there is one.

        Args:
            index: of the choice.
            text: whether the output begins with text, not with a call.
        """
        opening, echo = self._template.opening, self._options.echo
        if (opening is None and not echo) or index not in self._unopened:
            return b""
        if opening is None:
            return self._echo(index)
        beside = b""
        if self._options.token_ids and len(self._unopened) == self._total:
            beside = b',"prompt_token_ids":' + encode_line(self._requests[0].prompt)
        self._unopened.discard(index)
        if not text:
            opening = {"delta": {**opening["delta"], "content": None}}
        first = self._chunk(index, opening, beside=beside)
        return first + self._echo(index) if echo else first

    def _echo(self, index: int) -> bytes:
        """Return the chunk with the text that precedes a choice's output."""
        options, prompt = self._options, index // self._n
        request = self._requests[prompt]
        logprobs = None
        if options.logprobs and options.echo_logprobs:
            entries = (None, *self._prompt_logprobs[prompt])
            offsets = options.echo_offsets[prompt]
            logprobs = self._logprobs[index].take(request.prompt, entries, offsets)
        more: dict[str, Any] = {}
        if options.token_ids and index in self._unopened:
            more["prompt_token_ids"] = request.prompt
        self._unopened.discard(index)
        content = self._template.delta(options.echo[prompt])
        return self._chunk(index, content, logprobs=logprobs, more=more)

    def _rich(self, index: int, delta: Delta) -> bytes:
        """Return the chunk of a delta that is more than text."""
        if not (delta.token_ids or delta.text):
            return b""
        starts_with_call = bool(delta.parts) and type(delta.parts[0]) is CallBegun
        opening, logprobs = self._opening(index, text=not starts_with_call), None
        self._output_tokens += len(delta.token_ids)
        more: dict[str, Any] = {}
        if self._options.logprobs:
            logprobs = self._logprobs[index].take(delta.token_ids, delta.logprobs)
        if self._options.token_ids:
            more["token_ids"] = delta.token_ids
            if index in self._unopened:
                self._unopened.discard(index)
                more["prompt_token_ids"] = self._requests[index // self._n].prompt
        if delta.parts:
            return opening + self._of_parts(index, delta, logprobs, more)
        content = self._template.delta(delta.text)
        return opening + self._chunk(index, content, logprobs=logprobs, more=more)

    def _of_parts(
        self,
        index: int,
        delta: Delta,
        logprobs: Any = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        """Return a chunk for each part of a delta; the first one has the tokens' data."""
        chunks = [self._opening(index, text=type(delta.parts[0]) is not CallBegun)]
        if index not in self._parts:
            self._parts[index] = DeltaParts(self._options)
        for content in self._parts[index].take(delta.parts):
            chunks.append(self._chunk(index, {"delta": content}, logprobs=logprobs, more=more))
            logprobs = more = None
        if logprobs or more:
            chunks.append(self._chunk(index, {"delta": {}}, logprobs=logprobs, more=more))
        return b"".join(chunks)

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
        tail = self._tail
        if self._options.continuous_usage:
            so_far = usage_body(self._prompt_tokens, self._output_tokens)
            tail = b',"usage":%b}\n\n' % encode_line(so_far)
        return self._head + encode_line(entry) + b"]" + beside + tail
