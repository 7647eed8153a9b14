"""From JSON bodies to requests of the frontend's own kind."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from baton.errors import invalid_field
from baton.sampling import PARAMETERS, SamplingParams
from services.frontend.http.json_body import decode_body, not_json
from services.frontend.openai.request.conversation import conversation
from services.frontend.openai.request.forms import is_strict, read_form
from services.frontend.openai.request.functions import read_function_use
from services.frontend.openai.request.schema import (
    ANY_CHAT,
    ANY_COMPLETION,
    CHAT,
    COMPLETION,
    ChatBody,
    Common,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    refuse_unsupported,
)
from services.frontend.openai.request.tools import definitions, read_tool_use
from services.frontend.requests.prompt_fields import template_options, with_suffix
from services.frontend.requests.request import (
    GenerationRequest,
    Prompt,
    PromptOptions,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.text.chat_template import TemplateOptions

EXECUTION_HEADER = b"x-baton-execution-id"
_NAMES = {"execution_id": EXECUTION_HEADER.decode()}
_CHAT_NAMES = {**_NAMES, "logprobs": "top_logprobs"}
_NEW_CHAT_NAMES = {**_CHAT_NAMES, "max_tokens": "max_completion_tokens"}

_TOKEN_ID = re.compile(r"-?[0-9]{1,18}")

_chat = (msgspec.json.Decoder(CHAT), msgspec.json.Decoder(ANY_CHAT))
_completion = (msgspec.json.Decoder(COMPLETION), msgspec.json.Decoder(ANY_COMPLETION))
"""Without and with fields that are not known."""
_tokenize = msgspec.json.Decoder(TokenizeBody)
_detokenize = msgspec.json.Decoder(DetokenizeBody)
_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])
_ids = msgspec.json.Decoder(list[int])
_id_lists = msgspec.json.Decoder(list[list[int]])


def read_chat(data: bytes, *, unknown: bool = False) -> ChatBody:
    """Decode the body of a chat completion.

    Args:
        data: the body.
        unknown: whether fields that are not known are ignored.

    Raises:
        BatonError: it is no JSON, a type is wrong, or a field is not known or not supported.
    """
    body = decode_body(_chat[unknown], data)
    refuse_unsupported(body)
    return body


def read_completion(data: bytes, *, unknown: bool = False) -> CompletionBody:
    """Decode the body of a text completion; the rest as of `read_chat`."""
    body = decode_body(_completion[unknown], data)
    refuse_unsupported(body)
    return body


def read_detokenize(data: bytes) -> DetokenizeBody:
    """Decode the body of a detokenize request; errors as of `read_chat`."""
    return decode_body(_detokenize, data)


def read_tokenize(data: bytes) -> TokenizeBody:
    """Decode the body of a tokenize request; errors as of `read_chat`."""
    return decode_body(_tokenize, data)


class RequestNames(NamedTuple):
    """What the head of a request says that it is called."""

    request_id: str
    """In logs, traces and answers."""
    execution_id: str = ""
    """The execution that it claims; empty: none."""


def chat_request(body: ChatBody, called: RequestNames, max_messages: int) -> GenerationRequest:
    """Return the request of a chat completion, unchecked.

    Raises:
        BatonError: as of `conversation`; logprobs are asked for in a way that makes no sense.
    """
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    if body.top_logprobs and not body.logprobs:
        raise invalid_field("top_logprobs", "requires logprobs to be true")
    _check_stream(body)
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    use = read_function_use(body) or read_tool_use(body)
    tools = () if use is None else [tool.definition for tool in use.tools]
    options = _template_options(body, tools)
    names = _CHAT_NAMES if body.max_completion_tokens is None else _NEW_CHAT_NAMES
    return GenerationRequest(
        model=body.model or "",
        prompt=conversation(body.messages or (), max_messages, options),
        **_sampling(body, names, logprobs=logprobs, max_tokens=limit),
        prompt_options=_prompt_options(body),
        tools=use,
        n=1 if body.n is None else body.n,
        request_id=called.request_id,
        execution_id=called.execution_id,
        tenant=body.tenant or "",
        ttft_target_seconds=body.ttft_target_seconds or 0.0,
        timeout_seconds=body.timeout_seconds or 0.0,
    )


def completion_requests(
    body: CompletionBody, called: RequestNames, max_outputs: int
) -> list[GenerationRequest]:
    """Return the requests of a text completion, one per prompt, unchecked.

    Raises:
        BatonError: prompts times `n` is more than `max_outputs`.
    """
    _check_stream(body)
    n = drawn_choices(body)
    logprobs, prompt_logprobs = body.logprobs, body.prompt_logprobs
    if body.echo and logprobs is not None and prompt_logprobs is None:
        prompt_logprobs = logprobs
    if n > (body.n or 1) and logprobs is None:
        logprobs = 0  # by which the best are chosen
    names = {**_NAMES, "n": "best_of"} if body.best_of else _NAMES
    given = _sampling(
        body, names, logprobs=logprobs, prompt_logprobs=prompt_logprobs, max_tokens=body.max_tokens
    )
    options = _prompt_options(body)
    prompts = [
        with_suffix(prompt, body.suffix or "", body.add_special_tokens)
        for prompt in _prompts(body.prompt, n, max_outputs)
    ]
    return [
        GenerationRequest(
            model=body.model or "",
            prompt=prompt,
            **given,
            prompt_options=options,
            n=n,
            request_id=called.request_id if len(prompts) == 1 else f"{called.request_id}-{index}",
            execution_id=called.execution_id,
            prompt_index=index,
            prompt_count=len(prompts),
            tenant=body.tenant or "",
            ttft_target_seconds=body.ttft_target_seconds or 0.0,
            timeout_seconds=body.timeout_seconds or 0.0,
        )
        for index, prompt in enumerate(prompts)
    ]


def drawn_choices(body: CompletionBody) -> int:
    """Return how many outputs a text completion needs of each prompt, of which `n` are given.

    Raises:
        BatonError: `best_of` is less than `n`, or the answer is to be streamed.
    """
    n = 1 if body.n is None else body.n
    if not body.best_of or body.best_of == n:
        return n
    if body.best_of < n:
        raise invalid_field("best_of", f"{body.best_of} is out of range: at least n ({n})")
    if body.stream:
        raise invalid_field(
            "best_of",
            "cannot be combined with stream: the best outputs are known only at the end",
        )
    return body.best_of


def tokenized(body: TokenizeBody, max_messages: int) -> tuple[Prompt, PromptOptions]:
    """Return what a tokenize request is about, and how to tokenize it; errors as of
    `conversation`."""
    options = PromptOptions(add_special_tokens=body.add_special_tokens)
    if body.messages is not None and not body.prompt:
        template = _template_options(body, definitions(body))
        return conversation(body.messages, max_messages, template), options
    return TextPrompt(body.prompt or ""), options


def _template_options(
    body: ChatBody | TokenizeBody, tools: Sequence[Mapping[str, Any]]
) -> TemplateOptions:
    return template_options(
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        chat_template_kwargs=body.chat_template_kwargs,
        documents=body.documents,
        reasoning_effort=body.reasoning_effort,
        tools=tools,
    )


def _prompt_options(body: Common) -> PromptOptions:
    return PromptOptions(
        add_special_tokens=body.add_special_tokens,
        truncate_tokens=body.truncate_prompt_tokens,
        keep_first=body.truncation_side == "right",
    )


def _check_stream(body: ChatBody | CompletionBody) -> None:
    options = body.stream_options
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        raise invalid_field("stream_options.continuous_usage_stats", "requires include_usage")
    if body.stream and body.prompt_logprobs is not None:
        raise invalid_field("prompt_logprobs", "cannot be combined with stream")


def _prompts(raw: msgspec.Raw, n: int, max_outputs: int) -> list[Prompt]:
    """A string, a list of strings, token ids, or a list of lists of token ids."""
    data = bytes(raw).lstrip()
    inner = data[1:].lstrip()[:1] if data[:1] == b"[" else b""
    try:
        if data in (b"", b"null") or inner == b"]":
            return [TextPrompt("")]
        if inner == b'"':
            texts = _texts.decode(data)
            _check_outputs(len(texts), n, max_outputs)
            return [TextPrompt(text) for text in texts]
        if inner == b"[":
            id_lists = _id_lists.decode(data)
            _check_outputs(len(id_lists), n, max_outputs)
            return [TokenPrompt(ids) for ids in id_lists]
        if inner:
            return [TokenPrompt(_ids.decode(data))]
        return [TextPrompt(_text.decode(data))]
    except msgspec.ValidationError:
        raise invalid_field(
            "prompt", "must be a string, a list of strings, token ids, or lists of token ids"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # its texts were not read before
        raise not_json(error) from None


def _check_outputs(prompts: int, n: int, max_outputs: int) -> None:
    if prompts * max(n, 1) > max_outputs and n <= max_outputs:
        raise invalid_field(
            "prompt", f"{prompts} prompts with n = {n} exceed the limit of {max_outputs} outputs"
        )


def _sampling(body: Common, names: Mapping[str, str], **other: Any) -> dict[str, Any]:
    """Return the parameters of a body, which it says, and what it calls them, by the names of
    `GenerationRequest`.

    Args:
        body: what was sent.
        names: what it calls fields that have another name here.
        other: parameters that it has in another shape.

    Raises:
        BatonError: INVALID_FIELD, a key of logit_bias is no token id; or as of `read_form`.
    """
    form = read_form(body)
    if form is not None:
        names = {**names, "grammar": form[0]}
        other["grammar"] = form[1]
    given = {each.name: getattr(body, each.name, None) for each in PARAMETERS} | other
    if body.logit_bias is not None:
        given["logit_bias"] = {
            _token_id(key): value for key, value in body.logit_bias.items() if value
        }
    said = frozenset(name for name, value in given.items() if value is not None)
    return {
        "sampling": SamplingParams.from_vllm_options(given),
        "given": said,
        "strict_form": is_strict(body),
        "names": names,
    }


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key):
        raise invalid_field("logit_bias", f"{key[:64]!r} is not a token id")
    return int(key)
