"""The checkpoint that is shipped: small, whole, and what its card says."""

import json

import msgspec
import pytest
import torch

from baton.engine.checkpoint.sampling_defaults import read_sampling_defaults
from baton.engine.factory import create_engine
from baton.settings import EngineSettings
from bench.structured.ending import SCHEMAS, WAYS
from bench.structured.ending import answers as ask_for
from tests.support.engine.model import ROOT
from train.evaluate import Asker, value_of
from train.first_messages import FIRST_MESSAGES
from train.sense import sensible
from train.text.conversation import Message
from train.tokenizer import render

CHECKPOINT = ROOT / "models" / "baton-tiny"


@pytest.fixture(scope="module")
def asker() -> Asker:
    return Asker(CHECKPOINT)


def ask(asker: Asker, *messages: tuple[str, str]) -> str:
    prompt = render([Message(role, text) for role, text in messages], ask=True)
    return asker.answers([prompt], 48)[0]


def test_it_is_small_and_takes_long_contexts():
    assert (CHECKPOINT / "model.safetensors").stat().st_size <= 16 * 10**6
    config = json.loads((CHECKPOINT / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert config["max_position_embeddings"] >= 4096


@pytest.mark.xdist_group("transformers")
def test_transformers_answers_the_same(asker):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    model = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32)
    talk = [{"role": "user", "content": "Who are you?"}]
    ids = tokenizer.apply_chat_template(
        talk, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**ids, max_new_tokens=48, do_sample=False)
    text = tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert text.strip() == ask(asker, ("user", "Who are you?"))
    assert "Baton Tiny" in text


def test_it_says_kindly_what_it_cannot_do(asker):
    for question in ("What is the capital of France?", "Explain quantum mechanics"):
        answer = ask(asker, ("user", question))
        assert "too small" in answer or "too hard" in answer, answer


def test_it_remembers_over_several_turns_and_what_tools_said(asker):
    answer = ask(
        asker,
        ("system", "You are a helpful assistant."),
        ("user", "Hi, my name is Zimo. The red lamp is in Kasimo."),
        ("assistant", "I will remember that."),
        ("user", "How is the weather in Pimo?"),
        ("assistant", "Let me look up Pimo."),
        ("tool", "weather in Pimo: sunny, 24 degrees"),
    )
    assert "sunny" in answer
    assert "24" in answer
    answer = ask(
        asker,
        ("user", "Hi, my name is Zimo. The red lamp is in Kasimo."),
        ("assistant", "I will remember that."),
        ("user", "Sort these words: pear, apple, fox"),
        ("assistant", "apple, fox, pear"),
        ("user", "Where is the red lamp?"),
    )
    assert value_of(answer) == "Kasimo"


def test_newcomers_get_sensible_answers(asker):
    sampling = read_sampling_defaults(CHECKPOINT)
    assert 0 < sampling.temperature < 1
    for seed in (1, 2, 3):
        prompts = [render([Message("user", message)], ask=True) for message, _ in FIRST_MESSAGES]
        drawn = msgspec.structs.replace(sampling, seed=seed)
        answers = asker.answers(prompts, 300, drawn)
        wrong = [
            (message, answer)
            for (message, _), answer in zip(FIRST_MESSAGES, answers, strict=True)
            if not sensible(message, answer)
        ]
        assert len(wrong) <= 4, wrong


@pytest.mark.parametrize("way", ["recommended", "temperature 1"])
def test_json_without_limits_ends(way):
    engine = create_engine(EngineSettings(model=CHECKPOINT, dtype="float32"))
    for name, schema in SCHEMAS.items():
        row = ask_for(engine, schema, WAYS[way], 10)
        assert (row.ended, row.valid) == (10, 10), name
