"""LiteLLM as a client: whole, streamed, and its error of contexts that are too short.

python with_litellm.py URL MODEL ENVIRONMENTS    knows nothing of this repository
"""

import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

import litellm
from cases import run

URL, MODEL, _ = sys.argv[1:]
ASKED: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none"}
TEXT: dict[str, Any] = {**ASKED, "model": f"text-completion-openai/{MODEL}"}
QUESTION: Any = [{"role": "user", "content": "Hello"}]
litellm.suppress_debug_info = True


def a_conversation() -> str:
    answer: Any = litellm.completion(messages=QUESTION, max_tokens=8, **ASKED)
    assert answer.usage.completion_tokens > 0
    return repr(answer.choices[0].message.content)


def a_stream() -> str:
    texts = []
    usage = None
    options = {"include_usage": True}
    stream: Any = litellm.completion(
        messages=QUESTION, max_tokens=8, stream=True, stream_options=options, **ASKED
    )
    for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        texts += [choice.delta.content or "" for choice in chunk.choices]
    assert usage is not None
    assert usage.completion_tokens > 0
    return repr("".join(texts))


def a_context_that_is_too_short() -> str:
    sentences = []
    long: Any = [{"role": "user", "content": "word " * 20_000}]
    for asked in ({"messages": long}, {"messages": QUESTION, "max_tokens": 100_000}):
        try:
            litellm.completion(**asked, **ASKED)
        except litellm.ContextWindowExceededError as error:
            sentences.append(str(error).split("OpenAIException - ")[1])
    assert len(sentences) == 2
    return sentences[0]


def an_echo_with_log_probabilities() -> str:
    answer: Any = litellm.text_completion(
        prompt="Once upon a time", max_tokens=1, echo=True, logprobs=1, **TEXT
    )
    (choice,) = answer.choices
    assert choice.text.startswith("Once upon a time")
    first, *rest = choice.logprobs.token_logprobs
    assert first is None
    assert all(value <= 0 for value in rest)
    return repr([round(value, 2) for value in rest])


if __name__ == "__main__":
    sys.exit(
        run(
            a_conversation,
            a_stream,
            a_context_that_is_too_short,
            an_echo_with_log_probabilities,
        )
    )
