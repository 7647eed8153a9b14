"""Predicted waits of models: asked in the background, and kept for a moment."""

import asyncio

from baton.errors import BatonError, Reason
from services.frontend.placement.model_waits import KEEP_SECONDS, ModelWaits


async def test_the_last_answer_is_used_and_asked_for_again_when_it_is_old() -> None:
    now = 100.0
    answers = [3.0, 5.0]
    asked: list[str] = []

    async def ask(model: str) -> float:
        asked.append(model)
        if not answers:
            raise BatonError(Reason.UNAVAILABLE, "away")
        return answers.pop(0)

    waits = ModelWaits(ask, lambda: now)
    try:
        assert [waits.of("m"), waits.of("m")] == [0.0, 0.0], "nothing is known before an answer"
        await asyncio.sleep(0)
        assert (waits.of("m"), asked) == (3.0, ["m"])
        now += KEEP_SECONDS
        assert waits.of("m") == 3.0
        await asyncio.sleep(0)
        assert (waits.of("m"), asked) == (5.0, ["m"] * 2)
        now += KEEP_SECONDS
        waits.of("m")
        await asyncio.sleep(0)
        assert waits.of("m") == 0.0, "a router that is away delays nobody"
    finally:
        await waits.close()


async def test_it_ends_while_a_router_does_not_answer() -> None:
    waits = ModelWaits(lambda _: asyncio.Event().wait())
    assert waits.of("m") == 0.0
    await asyncio.sleep(0)
    await waits.close()
