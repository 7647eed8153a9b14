"""A frontend is killed while it writes a summary: another one writes it, and it is paid once."""

from functools import partial
from typing import Any

import pytest

from tests.integration.frontend.stored.test_takeover import Pair, pair
from tests.support.engine import pace
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

__all__ = ["pair"]  # a fixture

THRESHOLD = 512
FEW: Any = {"model": MODEL, "max_output_tokens": 4, "temperature": 0}
MANAGED: Any = [{"type": "compaction", "compact_threshold": THRESHOLD}]
WORDS = "the boat is on the lake and it is a good day for all of us to go and see it " * 2


@pytest.mark.parametrize("pair", ["torch"], indirect=True)
async def test_another_frontend_writes_the_summary(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_SECONDS", 0.5)  # a summary takes half a minute
    stays, ends = pair.stays_client, pair.ends_client
    conversation = await stays.conversations.create()
    turn = FEW | {"input": WORDS, "conversation": conversation.id}
    tokens = 0
    while tokens < THRESHOLD:
        tokens = (await stays.responses.create(**turn)).usage.total_tokens
    with paced():
        await ends.responses.create(context_management=MANAGED, **turn)
        await eventually(partial(_rows, pair, "body is null"))
        pair.ends.kill()
        # Its lease would end after two minutes.
        await pair.fetch("update compactions set lease_until = now() - interval '1 second'")
    last = await stays.responses.create(context_management=MANAGED, **turn)
    await eventually(partial(_rows, pair, "body is not null"))
    assert len(await pair.fetch("select 1 from compactions")) == 1
    later: Any = [{"type": "compaction"}]  # so that no other one is due
    seen = await stays.responses.create(context_management=later, **turn)
    (told,) = seen.to_dict()["input_transformations"]
    assert told["summary"] is True
    await eventually(partial(_recorded, pair, last.id))
    items = [item async for item in stays.conversations.items.list(conversation.id)]
    assert {item.type for item in items} == {"message"}


async def _rows(pair: Pair, where: str) -> bool:
    return bool(await pair.fetch(f"select 1 from compactions where {where}"))


async def _recorded(pair: Pair, response: str) -> bool:
    """Return whether there is one record of a summary, which names what it was written for."""
    of = "from usage_records where operation = 'compaction'"
    records = await pair.fetch(f"select request_id, batch, outcome, output_tokens {of}")
    if not records:
        return False
    assert [tuple(row)[:3] for row in records] == [(response, True, "ok")]
    assert 0 < records[0]["output_tokens"] <= THRESHOLD // 8
    return True
