"""An exported model is one checkpoint to everybody who reads it."""

import json
import multiprocessing

import numpy as np
import pytest
import torch

from train.export import export
from train.feed import Feed
from train.model import Llama, Shape
from train.state import restore, save
from train.text.conversation import Message
from train.tokenizer import render

SMALL = Shape(vocab=512, hidden=32, mlp=64, layers=2, heads=2, kv_heads=1, head_size=16)


def model_for(tokenizer, seed=1) -> Llama:
    shape = Shape(
        vocab=tokenizer.get_vocab_size(),
        hidden=32,
        mlp=64,
        layers=2,
        heads=2,
        kv_heads=1,
        head_size=16,
    )
    return Llama(shape, seed)


@pytest.mark.xdist_group("transformers")
def test_transformers_computes_the_same_logits(tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    model = model_for(tokenizer)
    export(model, tokenizer, tmp_path, torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, model.shape.vocab, (2, 33), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(33).expand(2, -1)
    with torch.no_grad():
        ours = model.logits(model(ids, positions))
        assert torch.allclose(ours, theirs(ids).logits, atol=1e-5)


@pytest.mark.xdist_group("transformers")
def test_the_chat_template_writes_what_training_read(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    export(model_for(tokenizer), tokenizer, tmp_path)
    messages = [
        Message("system", "Answer shortly."),
        Message("user", "How is the weather in Pimo?"),
        Message("assistant", "Let me look up Pimo."),
        Message("tool", "weather in Pimo: sunny, 20 degrees"),
    ]
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    written = theirs.apply_chat_template(
        [{"role": m.role, "content": m.text} for m in messages],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert written == render(messages, ask=True)
    ends = json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"]
    assert theirs.convert_tokens_to_ids("<|im_end|>") in ends


def test_a_saved_run_goes_on_where_it_was(tmp_path):
    model = Llama(SMALL, 1)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    optimizer = torch.optim.AdamW(matrices, lr=1e-2)

    def step(model, optimizer, seed):
        ids = torch.randint(0, 512, (1, 16), generator=torch.Generator().manual_seed(seed))
        loss = model.logits(model(ids, torch.arange(16)[None])).logsumexp(-1).mean()
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    step(model, optimizer, 0)
    save(tmp_path, model, [optimizer], {"step": 1, "seconds": 2.5})
    step(model, optimizer, 1)

    fresh = Llama(SMALL, 2)
    fresh_optimizer = torch.optim.AdamW([p for p in fresh.parameters() if p.dim() == 2], lr=1e-2)
    assert restore(tmp_path, fresh, [fresh_optimizer]) == {"step": 1, "seconds": 2.5}
    step(fresh, fresh_optimizer, 1)
    for one, other in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(one, other)
    assert restore(tmp_path / "elsewhere", fresh, [fresh_optimizer]) is None


@pytest.mark.timeout(60)
def test_the_feed_hands_out_batches_and_ends(tokenizer_dir):
    feed = Feed(tokenizer_dir / "tokenizer.json", 0, 0, 512, 4096)
    with feed.running(0.0):
        one, other = feed.next(0.0), feed.next(0.0)
    assert not np.array_equal(one.inputs, other.inputs)
    assert not [child for child in multiprocessing.active_children() if child.daemon]
