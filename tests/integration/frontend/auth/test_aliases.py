"""Keys that may be used for an alias, or for what it means."""

import asyncio

import httpx

from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.test_aliases import OTHER, point, two_models
from tests.support.wait import eventually


async def test_keys_for_an_alias_or_for_what_it_means(keys: Keys) -> None:
    stage = keys.stage
    await two_models(stage)
    await point(stage, "gpt", stage.model)
    _, by_alias = await keys.key(models=("gpt",))
    _, by_model = await keys.key(models=(stage.model,))
    _, by_other = await keys.key(models=(OTHER,))
    async with httpx.AsyncClient(base_url=stage.http_url) as http:

        async def status(secret: str, model: str) -> int:
            body = {"model": model, "prompt": "abc", "max_tokens": 2}
            headers = bearer(secret)
            return (await http.post("/v1/completions", json=body, headers=headers)).status_code

        async def served() -> bool:
            return await status(by_model, "gpt") == 200

        await eventually(served)
        asked = [
            status(secret, model)
            for secret in (by_alias, by_model, by_other)
            for model in ("gpt", stage.model)
        ]
        assert await asyncio.gather(*asked) == [200] * 4 + [403] * 2
        for secret, expected in ((by_alias, {"gpt", stage.model}), (by_other, {OTHER})):
            found = (await http.get("/v1/models", headers=bearer(secret))).json()["data"]
            assert {one["id"] for one in found} == expected
