"""A model that comes later is served without a restart of anything."""

import pytest

from tests.support.engine.model import MODEL, TRAINED
from tests.support.wait import eventually

NAME = "later/baton-tiny"
TEXTS = ("Tell me a story about a fox.", "  Zimo,\n\tthe 4711th! éß 世界 🦊")


@pytest.mark.xdist_group("transformers")
async def test_a_frontend_answers_for_a_model_that_comes_later(local_cluster) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(TRAINED)  # takes a while, and blocks the loop
    cluster = await local_cluster(own=True)
    frontend = cluster.frontend.instance.incarnation
    assert [model.name for model in await cluster.client.models()] == [MODEL]
    settings = {"engine.model": TRAINED, "engine.model_name": NAME}
    for instance_id in ("prefill-7", "decode-7"):
        await cluster.start(instance_id, settings)

    async def listed() -> bool:
        return NAME in {model.name for model in await cluster.client.models()}

    await eventually(listed)
    for text in TEXTS:
        tokens = await cluster.client.tokenize(text, model=NAME)
        assert list(tokens.token_ids) == theirs.encode(text)
    messages = [{"role": "user", "content": TEXTS[1]}]
    stream = cluster.client.chat(messages, model=NAME, max_tokens=16, ignore_eos=True)
    answer = await stream.answer()
    rendered = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert answer.usage.prompt_tokens == len(rendered)
    assert answer.text == theirs.decode(answer.choices[0].token_ids, skip_special_tokens=True)
    assert not {step.instance for step in answer.steps} & {"prefill-0", "decode-0"}
    before = await cluster.client.generate([3] * 9, model=MODEL, max_tokens=4).answer()
    assert not {step.instance for step in before.steps} & {"prefill-7", "decode-7"}
    assert cluster.frontend.instance.incarnation == frontend
