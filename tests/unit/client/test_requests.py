"""Keyword options become exactly the fields that were given."""

import subprocess
import sys

import pytest

from baton.client.requests import (
    Options,
    chat_request,
    check_names,
    generate_request,
    tokenize_request,
)


def test_unset_options_stay_unset() -> None:
    request = generate_request("hi", "tiny", "r1", {})
    assert not request.sampling.HasField("temperature")
    assert not request.sampling.HasField("seed")
    assert not request.sampling.HasField("max_tokens")
    assert request.n == 0


def test_options_reach_their_fields() -> None:
    options: Options = {
        "max_tokens": 4,
        "stop": "END",
        "temperature": 0.0,
        "logit_bias": {3: -1.5},
        "logprobs": 0,
        "n": 2,
        "stop_token_ids": (1, 2),
    }
    request = chat_request("hi", "tiny", "r1", options)
    assert request.sampling.max_tokens == 4
    assert list(request.sampling.stop) == ["END"]
    assert list(request.sampling.stop_token_ids) == [1, 2]
    assert request.sampling.HasField("temperature")
    assert dict(request.sampling.logit_bias) == {3: -1.5}
    assert request.sampling.HasField("logprobs")
    assert request.n == 2
    assert [(message.role, message.content) for message in request.messages] == [("user", "hi")]


def test_every_option_is_known_and_a_misspelt_one_is_refused() -> None:
    for name in Options.__annotations__:
        check_names({name: 1})  # type: ignore[misc]
    with pytest.raises(TypeError, match="max_token"):
        check_names({"max_token": 4})  # type: ignore[typeddict-unknown-key]


def test_prompts_are_text_or_ids() -> None:
    assert generate_request("hi", "tiny", "r1", {}).text == "hi"
    assert list(generate_request([1, 2], "tiny", "r1", {}).token_ids.ids) == [1, 2]
    assert generate_request([], "tiny", "r1", {}).WhichOneof("prompt") == "token_ids"


def test_messages_are_tokenized_as_a_conversation() -> None:
    request = tokenize_request([{"role": "user", "content": "hi", "name": "ann"}], "tiny")
    assert (request.text, request.messages[0].name) == ("", "ann")
    assert tokenize_request("hi", "tiny").text == "hi"


def test_the_client_imports_nothing_heavy() -> None:
    code = (
        "import sys, baton.client; "
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('torch', 'numpy', 'pydantic', 'opentelemetry', 'uvicorn', 'typer')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
