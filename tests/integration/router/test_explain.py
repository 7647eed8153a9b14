"""`baton route explain` asks the routers of a cluster, over the network."""

import json
import os
from typing import Any

import pytest

from baton.cluster.etcd.client import Etcd
from baton.tenancy.admin.auto import AutoAdministration
from baton.tenancy.records.auto import AutoRule, AutoRules
from tests.integration.router.conftest import World
from tests.support.doubles.member import MODEL
from tests.support.processes.launcher import Launcher

CHAIN = [number.to_bytes(16, "little") for number in range(64)]
PAGES = {"free_pages": 1000, "total_pages": 1000, "prefill_tokens_per_second": 1000.0}


@pytest.fixture
async def explain(world: World, launcher: Launcher) -> Any:
    """Runs the command on the test's cluster; its exit code, output and complaints."""
    main = ("-c", "from baton.cli.app import main; main()", "route", "explain")
    at = ("--etcd-endpoint", ",".join(world.etcd.endpoints), "--cluster", world.cluster)
    return lambda *words: launcher.run((*main, *words, *at), {**os.environ, "COLUMNS": "200"})


async def test_a_request_is_explained_by_its_id_and_another_by_its_description(
    world: World, explain: Any
) -> None:
    for name in ("d1", "d2"):
        await (await world.decode(name)).load(**PAGES)
    frontend = world.frontend(await world.router())
    query = {"context": {"request_id": "asked-1", "tenant": "acme", "model": MODEL}}
    placed = await frontend.place(CHAIN, **query)
    code, out, err = await explain("asked-1", "--json")
    assert (code, err) == (0, ""), err
    ((answer,), *_) = [[one for one in json.loads(out) if one["explanations"]]]
    (told,) = answer["explanations"]
    assert (answer["router"], told["tenant"]) == ("router-0", "acme")
    assert told["reason"] == placed.prediction.reason
    chosen = [one for one in told["candidates"] if one["chosen"]]
    assert [one["decode_worker"] for one in chosen] == [placed.decode.instance_id]
    assert len(told["candidates"]) == 2
    code, out, _ = await explain("--prompt-tokens", "700", "--model", MODEL, "--tenant", "acme")
    assert (code, "Now, at router-0: 700 prompt tokens of tenant acme" in out) == (0, True), out


async def test_the_rule_of_auto_is_explained(world: World, explain: Any) -> None:
    await (await world.decode("d1")).load(**PAGES)
    await world.router()
    ask = ("--model", "auto", "--tenant", "acme", "--prompt-tokens")
    code, _, err = await explain(*ask, "700")
    assert (code, "auto has no rules: set them with `baton auto set`" in err) == (2, True), err
    rules = (
        AutoRule(name="long", models=("gone", MODEL), min_prompt_tokens=700, tools=True),
        AutoRule(name="away", models=("gone",), max_prompt_tokens=9),
    )
    async with Etcd(world.etcd.endpoints) as etcd:
        admin = AutoAdministration(etcd, world.cluster)
        await admin.set(AutoRules(models=(MODEL,), rules=rules), missing=True)
    code, out, err = await explain(*ask, "700", "--tools")
    rule = f"auto: rule long matches: gone, {MODEL}, in this order. Explained for {MODEL}:"
    assert (code, rule in out, "700 prompt tokens of tenant acme" in out) == (0, True, True), err
    code, out, _ = await explain(*ask, "700", "--json")
    assert [one["auto"] for one in json.loads(out)] == [
        {"rule": "", "models": [MODEL], "model": MODEL}
    ]
    code, _, err = await explain(*ask, "5")
    assert (code, "auto chooses gone for this request, and no worker" in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((), 2, "Name a request id, or describe a request"),
        (("r1", "--prompt-tokens", "5"), 2, "Name a request id, or describe a request"),
        (("--prompt", "hi", "--prompt-tokens", "5"), 2, "set only one of them"),
        (("r1",), 1, "has no router: none."),
    ],
)
async def test_what_cannot_be_explained_is_said_in_a_sentence(
    explain: Any, words: tuple[str, ...], code: int, sentence: str
) -> None:
    ended, _, err = await explain(*words)
    assert (ended, sentence in " ".join(err.split())) == (code, True), err
