"""The one validator: what a request may be, on gRPC and HTTP alike.

Every refusal names the field, the limit and what was given. `check` needs nothing but the request;
`check_model` and `resolve` need the model. Fields have the names of the OpenAI API.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.requests.models import Model
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    ResolvedRequest,
    Sampling,
    TextPrompt,
    TokenPrompt,
)

DEFAULT_TENANT = "default"
ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_N = 16
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 256
MAX_STOP_TOKEN_IDS = 256
MAX_LOGIT_BIASES = 1024
MAX_LOGPROBS = 20
MAX_MESSAGES = 4096
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_PRIORITIES = frozenset(common_pb2.PriorityClass.values())
_SPEAKER = re.compile(r"[A-Za-z0-9_-]{0,64}")


def check(request: GenerationRequest) -> None:
    """Check everything that does not depend on the model.

    Raises:
        BatonError: the first field that is wrong.
    """
    if not request.model:
        raise _invalid("model", "name a model; /v1/models lists them")
    if request.adapter:
        raise BatonError(
            Reason.UNSUPPORTED_PARAMETER, "adapters are not supported yet", field="adapter"
        )
    if request.tenant not in ("", DEFAULT_TENANT):
        raise _invalid("tenant", f"the only tenant is {DEFAULT_TENANT!r}")
    if request.cache_scope not in (
        common_pb2.CACHE_SCOPE_UNSPECIFIED,
        common_pb2.CACHE_SCOPE_TENANT,
    ):
        raise _invalid("cache_scope", "the model's policy does not allow a shared cache")
    if request.priority not in _PRIORITIES:
        raise _invalid("priority", f"{request.priority} is not a priority class")
    _whole("n", request.n, 1, MAX_N)
    check_prompt(request.prompt)
    _check_sampling(request)
    _check_stopping(request)
    if request.resume is not None:
        if request.n != 1:
            raise _invalid("resume", f"a stream is resumed with n = 1, not {request.n}")
        _whole("resume.seed", request.resume.seed, -_INT64 - 1, _INT64)


def check_model(request: GenerationRequest, model: Model) -> None:
    """Check what depends on the model, but the prompt: token ids, and what its workers can do.

    Raises:
        BatonError: the first field that is wrong.
    """
    vocab = model.vocab_tokens
    for field, feature in _needed_features(request.sampling):
        if feature not in model.features:
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{field}: the workers of the model {model.name!r} do not support it",
                field=field,
            )
    _check_ids("stop_token_ids", request.stopping.stop_token_ids, vocab)
    _check_ids("logit_bias", request.sampling.logit_bias, vocab)
    if request.resume is not None:
        _check_ids("resume.output_ids", request.resume.output_ids, vocab)


def resolve(
    request: GenerationRequest, model: Model, prompt: Sequence[int], drawn_seed: int
) -> ResolvedRequest:
    """Make a good request of a checked one.

    Args:
        request: what the client sent, after `check` and `check_model`.
        model: the model it names.
        prompt: its prompt's tokens.
        drawn_seed: the seed to use where it has none.

    Raises:
        BatonError: the prompt is empty, too long, leaves less room than max_tokens asks for, or
            has an id outside of the vocabulary.
    """
    field = "messages" if isinstance(request.prompt, ChatPrompt) else "prompt"
    if not prompt:
        raise _invalid(field, "the prompt has no tokens; at least one is needed")
    _check_ids(field, prompt, model.vocab_tokens)
    room = model.context_tokens - len(prompt)
    if room < 1:
        raise BatonError(
            Reason.CONTEXT_LENGTH_EXCEEDED,
            f"the model's context is {model.context_tokens} tokens, and at least one is for the "
            f"output; the prompt has {len(prompt)}",
            field=field,
        )
    max_tokens = room if request.stopping.max_tokens is None else request.stopping.max_tokens
    if max_tokens > room:
        name = request.names.get("max_tokens", "max_tokens")
        raise BatonError(
            Reason.CONTEXT_LENGTH_EXCEEDED,
            f"{name} is {max_tokens}, and after a prompt of {len(prompt)} tokens the model's "
            f"context of {model.context_tokens} has room for {room}; leave it out to use all",
            field=name,
        )
    sampling, resume = request.sampling, request.resume
    seed = sampling.seed if resume is None else resume.seed
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=request.request_id,
            tenant=DEFAULT_TENANT,
            priority=common_pb2.PriorityClass.ValueType(request.priority),
            model=model.name,
            cache_scope=common_pb2.CACHE_SCOPE_TENANT,
        ),
        model=model,
        prompt=prompt,
        sampling=common_pb2.SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=drawn_seed if seed is None else seed,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            logit_bias=sampling.logit_bias,
            logprobs=sampling.logprobs,
        ),
        stopping=common_pb2.StopParams(
            max_tokens=max_tokens,
            min_tokens=min(request.stopping.min_tokens, max_tokens),
            stop_token_ids=request.stopping.stop_token_ids,
            ignore_eos=request.stopping.ignore_eos,
        ),
        stop=tuple(request.stopping.stop),
        n=request.n,
        output_so_far=() if resume is None else tuple(resume.output_ids),
    )


def check_prompt(prompt: Prompt) -> None:
    """Check a prompt alone, as `check` does.

    Raises:
        BatonError: the first field that is wrong.
    """
    match prompt:
        case TextPrompt(text):
            if not text:
                raise _invalid("prompt", "the prompt is empty")
        case TokenPrompt(ids):
            if not ids:
                raise _invalid("prompt", "the prompt is empty")
        case ChatPrompt(messages):
            if not messages:
                raise _invalid("messages", "at least one message is needed")
            if len(messages) > MAX_MESSAGES:
                raise _invalid("messages", f"{len(messages)} messages, at most {MAX_MESSAGES}")
            for index, message in enumerate(messages):
                if message.role not in ROLES:
                    raise _invalid(
                        f"messages[{index}].role",
                        f"{message.role[:64]!r} is not a role; the roles are {', '.join(ROLES)}",
                    )
                if not _SPEAKER.fullmatch(message.name):
                    raise _invalid(
                        f"messages[{index}].name",
                        "a name has at most 64 letters, digits, _ and -",
                    )


def _check_sampling(request: GenerationRequest) -> None:
    sampling = request.sampling
    _within("temperature", sampling.temperature, 0, 2)
    _within("top_p", sampling.top_p, 0, 1, above=True)
    _whole("top_k", sampling.top_k, 0, _INT32)
    _within("min_p", sampling.min_p, 0, 1)
    _within("presence_penalty", sampling.presence_penalty, -2, 2)
    _within("frequency_penalty", sampling.frequency_penalty, -2, 2)
    _within("repetition_penalty", sampling.repetition_penalty, 0, 2, above=True)
    if sampling.seed is not None:
        _whole("seed", sampling.seed, -_INT64 - 1, _INT64)
    if sampling.logprobs is not None:
        name = request.names.get("logprobs", "logprobs")
        _whole(name, sampling.logprobs, 0, MAX_LOGPROBS)
    if len(sampling.logit_bias) > MAX_LOGIT_BIASES:
        raise _invalid(
            "logit_bias", f"{len(sampling.logit_bias)} token ids, at most {MAX_LOGIT_BIASES}"
        )
    for bias in sampling.logit_bias.values():
        _within("logit_bias", bias, -100, 100)


def _check_stopping(request: GenerationRequest) -> None:
    stopping = request.stopping
    most = request.names.get("max_tokens", "max_tokens")
    if stopping.max_tokens is not None and stopping.max_tokens < 1:
        raise _invalid(most, f"{stopping.max_tokens} is out of range: at least 1")
    if stopping.min_tokens < 0:
        raise _invalid("min_tokens", f"{stopping.min_tokens} is out of range: at least 0")
    if stopping.max_tokens is not None and stopping.min_tokens > stopping.max_tokens:
        raise _invalid(
            "min_tokens",
            f"{stopping.min_tokens} is out of range: at most {most}, {stopping.max_tokens}",
        )
    if len(stopping.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise _invalid(
            "stop_token_ids", f"{len(stopping.stop_token_ids)} ids, at most {MAX_STOP_TOKEN_IDS}"
        )
    if len(stopping.stop) > MAX_STOPS:
        raise _invalid("stop", f"{len(stopping.stop)} stop strings, at most {MAX_STOPS}")
    for stop in stopping.stop:
        if not 1 <= len(stop) <= MAX_STOP_CHARACTERS:
            raise _invalid(
                "stop", f"a stop string of {len(stop)} characters, 1 to {MAX_STOP_CHARACTERS}"
            )


def _needed_features(sampling: Sampling) -> Iterator[tuple[str, str]]:
    """Yield the fields that need an optional engine feature, and the feature."""
    if sampling.logprobs is not None:
        yield "logprobs", "logprobs"
    if sampling.logit_bias:
        yield "logit_bias", "logit_bias"
    if sampling.min_p:
        yield "min_p", "min_p"
    for field in ("presence_penalty", "frequency_penalty"):
        if getattr(sampling, field):
            yield field, "penalties"
    if sampling.repetition_penalty != 1:
        yield "repetition_penalty", "penalties"


def _check_ids(field: str, ids: Collection[int], vocab: int) -> None:
    if ids and (min(ids) < 0 or max(ids) >= vocab):  # prompts are long: no loop in Python
        wrong = next(token for token in ids if not 0 <= token < vocab)
        raise _invalid(
            field, f"the token id {wrong} is outside of the vocabulary, 0 to {vocab - 1}"
        )


def _within(field: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    if math.isfinite(value) and low <= value <= high and not (above and value == low):
        return
    limits = f"above {low} and up to {high}" if above else f"{low} to {high}"
    raise _invalid(field, f"{value:g} is out of range: {limits}")


def _whole(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise _invalid(field, f"{value} is out of range: {low} to {high}")


def _invalid(field: str, what: str) -> BatonError:
    return BatonError(Reason.INVALID_FIELD, f"{field}: {what}", field=field)
