"""Usage of requests for `auto`: records and costs are those of the model that answers."""

from pathlib import Path
from typing import Any

import httpx

from baton.tenancy.records.auto import AutoRule, AutoRules
from tests.integration.frontend.test_aliases import OTHER, two_models
from tests.integration.frontend.test_auto import CODE, apply, body
from tests.integration.frontend.usage.test_records import records_of


async def test_records_and_costs_are_of_the_model_that_answers(
    empty_stage: Any, tmp_path: Path
) -> None:
    stage = empty_stage
    await stage.set(
        {
            "usage.spool_path": tmp_path / "spool",
            "usage.jsonl_path": tmp_path / "files",
            "usage.prices": f"{stage.model}=1/1,{OTHER}=9/9,*=100/100",
        }
    )
    await two_models(stage)
    rule = AutoRule(name="code", models=(stage.model, OTHER), code=True, cheapest=True)
    dear = AutoRule(name="dear", models=(OTHER,), words=("dear",))
    await apply(stage, AutoRules(models=(OTHER, stage.model), rules=(rule, dear)))
    asked = ((CODE, stage.model, 1), ("dear", OTHER, 9), ("abc", OTHER, 9))
    tokens = []
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        for prompt, model, _ in asked:
            answer = (await http.post("/v1/completions", json=body(prompt))).json()
            assert answer["model"] == model
            tokens.append(answer["usage"]["total_tokens"])
    records = await records_of(stage, tmp_path / "files")
    assert [(one.model, one.cost_nanodollars) for one in records] == [
        (model, count * dollars * 1000)
        for (_, model, dollars), count in zip(asked, tokens, strict=True)
    ]
    assert [one.placement_reason for one in records] == [
        "auto chose the model by rule code; scripted",
        "auto chose the model by rule dear; scripted",
        "auto chose the model, by no rule; scripted",
    ]
