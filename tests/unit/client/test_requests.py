"""Keyword options become exactly the fields that were given."""

import subprocess
import sys

import pytest

from baton.client.requests import (
    ChatOptions,
    GenerateOptions,
    Options,
    chat_request,
    check_names,
    generate_request,
    tokenize_request,
)
from services.frontend.grpc.convert import generation_request
from services.frontend.requests.request import PromptOptions, TextPrompt


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


def test_options_of_prompts_reach_their_fields_and_the_frontend_reads_them() -> None:
    options: GenerateOptions = {
        "suffix": "end",
        "truncate_prompt_tokens": -1,
        "truncation_side": "right",
    }
    read = generation_request(generate_request("hi", "tiny", "r1", options), "r1", 9)
    assert read.prompt == TextPrompt("hi", "end")
    assert read.prompt_options == PromptOptions(truncate_tokens=-1, keep_first=True)
    plain = generate_request("hi", "tiny", "r1", {})
    assert generation_request(plain, "r1", 9).prompt_options == PromptOptions()
    chat: ChatOptions = {
        "add_special_tokens": True,
        "continue_final_message": True,
        "chat_template_kwargs": {"style": "é"},
        "documents": [],
    }
    asked = chat_request("hi", "tiny", "r1", chat)
    assert (asked.chat_template_kwargs, asked.documents) == ('{"style": "é"}', "[]")
    assert not asked.HasField("add_generation_prompt")
    assert not asked.HasField("reasoning_effort")
    assert generation_request(asked, "r1", 9).prompt_options.add_special_tokens is True
    with pytest.raises(ValueError, match="truncation_side"):
        generate_request("hi", "tiny", "r1", {"truncation_side": "middle"})


def test_every_option_is_known_and_a_misspelt_one_is_refused() -> None:
    for name in Options.__annotations__:
        check_names({name: 1})  # type: ignore[misc]
    check_names({"suffix": "x"})  # type: ignore[typeddict-unknown-key]
    check_names({"documents": []}, chat=True)  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="suffix"):
        check_names({"suffix": "x"}, chat=True)  # type: ignore[typeddict-unknown-key]
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
