"""Sealed reasoning is what was thought for the tenant that it was sealed for, and nothing else."""

import json
import time
from typing import Any

import pytest

from baton.errors import BatonError
from services.frontend.openai.request.parse import RequestNames
from services.frontend.openai.responses.input.sealing import INCLUDE, ItemSeal, ItemSeals
from services.frontend.openai.responses.parse import read_response, response_request
from services.frontend.requests.request import ChatPrompt

THOUGHT = "I look, é 🤖\n"
SEALED = ItemSeal(b"a" * 32).close(THOUGHT)


class Salts:
    """Salts that are the tenant's name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, tenant: str) -> bytes:
        self.asked.append(tenant)
        return tenant.encode() * 32


def thought(sealed: Any, **fields: Any) -> str:
    """Return what a model is shown of an item with sealed reasoning."""
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": sealed, **fields}
    given = [{"role": "user", "content": "hi"}, item, {"role": "assistant", "content": "ho"}]
    body = read_response(json.dumps({"model": "m", "input": given}).encode())
    seal = ItemSeal(b"a" * 32)
    prompt = response_request(body, RequestNames("r"), 9, seal).generation.prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages[1].reasoning


def test_sealed_reasoning_is_the_same_thought() -> None:
    plain = [{"type": "reasoning_text", "text": THOUGHT}]
    assert thought(SEALED) == thought(None, content=plain) == THOUGHT
    assert thought(SEALED, content=plain) == THOUGHT
    assert ItemSeal(b"a" * 32).close(THOUGHT) != SEALED  # each has a key of its own
    assert ItemSeal(b"a" * 32).open(ItemSeal(b"a" * 32).close("")) == ""


FORGED = {
    "another tenant's": ItemSeal(b"b" * 32).close(THOUGHT),
    "cut": SEALED[:-8],
    "cut to its head": SEALED[:40],
    "changed": SEALED[:90] + ("A" if SEALED[90] != "A" else "B") + SEALED[91:],
    "of another format": "Ag" + SEALED[2:],
    "no base64": "!" + SEALED,
    "not ASCII": "é" * 99,
    "empty": "",
    "no text": 7,
}


@pytest.mark.parametrize("sealed", FORGED.values(), ids=FORGED)
def test_what_was_not_sealed_for_the_tenant_is_refused_alike(sealed: Any) -> None:
    with pytest.raises(BatonError) as caught:
        thought(sealed, content=[{"type": "reasoning_text", "text": "x"}])
    assert caught.value.field == "input[1].encrypted_content"
    assert "was not sealed by this cluster for this tenant" in caught.value.message


@pytest.mark.parametrize("sealed", [SEALED[:-8], SEALED + "A" * 200_000], ids=["cut", "long"])
def test_a_refusal_takes_5_ms_at_most(sealed: str) -> None:
    def refuse() -> float:
        began = time.thread_time()
        with pytest.raises(BatonError):
            thought(sealed)
        return time.thread_time() - began

    assert min(refuse() for _ in range(10)) < 0.005


async def test_only_requests_with_sealed_reasoning_need_the_tenants_secret() -> None:
    salts = Salts()
    seals = ItemSeals(salts)
    for given in (None, "hi", [{"type": "reasoning", "encrypted_content": None}, 7]):
        assert await seals.needed("a", None, given) is None
        assert await seals.needed("a", ["x"], given) is None
    assert salts.asked == []
    item: Any = [{"encrypted_content": SEALED}]
    for seal in (await seals.needed("a", [INCLUDE], "hi"), await seals.needed("a", None, item)):
        assert seal is not None
        assert seal.open(SEALED) == THOUGHT
    other = await seals.needed("b", [INCLUDE], None)
    assert other is not None
    assert other.open(SEALED) is None
