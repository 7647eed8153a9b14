"""Keys and `auto`: it chooses only among what a key may be used for."""

import httpx

from baton.tenancy.admin.auto import AutoAdministration
from baton.tenancy.records.auto import AutoRule, AutoRules
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.test_aliases import OTHER, two_models
from tests.integration.frontend.test_auto import CODE, body
from tests.support.wait import eventually


async def test_auto_chooses_among_what_a_key_permits(keys: Keys) -> None:
    stage = keys.stage
    await two_models(stage)
    _, all_models = await keys.key()
    _, small = await keys.key(models=(stage.model,))
    _, none = await keys.key(models=("nothing",))
    record = AutoRules(
        models=(stage.model, OTHER),
        rules=(
            AutoRule(name="free", models=(stage.model,), tiers=("free",)),
            AutoRule(name="code", models=(OTHER, stage.model), code=True, tiers=("pro",)),
        ),
    )
    await AutoAdministration(stage.client, stage.cluster).set(record, missing=True)
    async with httpx.AsyncClient(base_url=stage.http_url) as http:

        async def answer(secret: str) -> httpx.Response:
            return await http.post("/v1/completions", json=body(CODE), headers=bearer(secret))

        async def chosen() -> bool:
            return bool((await answer(all_models)).json().get("model") == OTHER)

        await eventually(chosen)
        assert (await answer(small)).json()["model"] == stage.model
        refused = await answer(none)
        assert refused.status_code == 403
        assert (
            "permits none of the models that auto chooses for this request (rule code)"
            in (refused.json()["error"]["message"])
        )
        for secret, expected in (
            (small, {stage.model, "auto"}),
            (none, set()),
            (all_models, {stage.model, OTHER, "auto"}),
        ):
            found = (await http.get("/v1/models", headers=bearer(secret))).json()["data"]
            assert {one["id"] for one in found} == expected
