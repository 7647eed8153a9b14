"""Run requests on an engine in one process, without the KV service: the reference for tests."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, PromptScored, SampledTokens, SequenceEnded
from baton.request.stream_events import TokenLogprob


@dataclass(slots=True)
class LocalOutput:
    """Output of one request."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    """Output tokens by choice."""
    logprobs: dict[int, list[TokenLogprob]] = field(default_factory=dict)
    """Log probabilities by choice, if the request asked for them."""
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Log probabilities of the prompt's tokens but the first, if the request asked for them."""
    ended: SequenceEnded | None = None


def run_local(engine: Engine, requests: Iterable[SequenceRequest]) -> list[LocalOutput]:
    """Run requests together on an engine that has no others; return outputs in their order.

    Raises:
        QueueFullError: there are more requests than may wait.
        ValueError: a request is rejected; those before it stay open.
    """
    outputs: dict[int, LocalOutput] = {}
    for request in requests:
        engine.add(request)
        outputs[request.id] = LocalOutput()
    unfinished = len(outputs)
    while unfinished:
        for event in engine.step():
            match event:
                case Admitted():
                    engine.start(event.id, event.cached_tokens)
                case PromptScored():
                    outputs[event.id].prompt_logprobs.extend(event.logprobs)
                case SampledTokens():
                    output = outputs[event.id]
                    output.tokens.setdefault(event.choice, []).extend(event.token_ids)
                    output.logprobs.setdefault(event.choice, []).extend(event.logprobs)
                case SequenceEnded():
                    outputs[event.id].ended = event
                    engine.close(event.id)
                    unfinished -= 1
    return list(outputs.values())
