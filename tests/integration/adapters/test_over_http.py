"""vLLM's paths for adapters: for keys of administrators, and for the whole cluster."""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from baton.cluster.etcd.client import Etcd
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from tests.integration.adapters.conftest import TORCH
from tests.support.models.server import ModelServer, sums
from tests.support.wait import eventually

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


class Rig(NamedTuple):
    """A frontend that wants keys, and a worker."""

    http: httpx.AsyncClient
    """With a key of an administrator, who may also use models."""
    inference: str
    """A key without administration."""
    records: AdapterAdministration
    model: Path
    allowed: Path
    web: ModelServer
    """What is below /web/allowed/ there is allowed, too."""

    async def post(self, path: str, code: int, **body: Any) -> str:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == code, answer.text
        if code == 200:
            return answer.text
        told = answer.json()["error"]
        return f"{told['param']} {told['message']}"


@pytest.fixture
def web() -> Iterator[ModelServer]:
    with ModelServer({}) as server:
        yield server


@pytest.fixture
async def rig(
    start_service: Any,
    etcd_client: Etcd,
    cluster: str,
    random_model: Callable[..., Path],
    tmp_path: Path,
    web: ModelServer,
) -> AsyncIterator[Rig]:
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    project = await admin.find_project("acme", "default")
    _, secret = await admin.create_key(project, ("admin", "inference"))
    _, inference = await admin.create_key(project, ("inference",))
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    own = {"kv.store_id": "", "kv.connect_seconds": 0, "engine.adapter_cache": tmp_path / "cache"}
    settings = {**TORCH, "engine.model": random_model(), **own}
    await start_service("combined", settings)
    places = (str(allowed), f"{web.url}/web/allowed")
    more = {"auth.mode": "keys", "adapters.allowed_locations": places}
    frontend = await start_service("frontend", {**settings, **more})
    headers = {"authorization": f"Bearer {secret}"}
    url = f"http://{frontend.instance.http_address}"
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        records = AdapterAdministration(etcd_client, cluster)
        yield Rig(http, inference, records, random_model(), allowed, web)


async def test_an_adapter_is_loaded_replaced_and_unloaded(rig: Rig) -> None:
    first = str(write_random_adapter(rig.allowed / "a", rig.model))
    other = str(write_random_adapter(rig.allowed / "b", rig.model, 1))
    said = await rig.post(LOAD, 200, lora_name="sql", lora_path=first)
    assert said == "Success: LoRA adapter 'sql' added successfully."
    asked = {"model": "sql", "prompt": "x", "max_tokens": 2}
    answer = await rig.http.post("/v1/completions", json=asked)
    assert answer.json()["model"] == "sql"
    listed = (await rig.http.get("/v1/models")).json()["data"]
    assert [(one["id"], one["parent"]) for one in listed] == [("base", None), ("sql", "base")]
    again = await rig.post(LOAD, 400, lora_name="sql", lora_path=other)
    assert again.startswith("lora_name lora_name: sql is registered")
    await rig.post(LOAD, 200, lora_name="sql", lora_path=other, load_inplace=True)
    assert (await rig.records.get("sql")).location == other
    said = await rig.post(UNLOAD, 200, lora_name="sql")
    assert said == "Success: LoRA adapter 'sql' removed successfully."

    async def gone() -> bool:
        return (await rig.http.post("/v1/completions", json=asked)).status_code == 404

    await eventually(gone)
    assert "'sql' is not registered" in await rig.post(UNLOAD, 404, lora_name="sql")


async def test_only_administrators_change_adapters(rig: Rig) -> None:
    made = str(write_random_adapter(rig.allowed / "a", rig.model))
    for path in (LOAD, UNLOAD):
        body = {"lora_name": "sql", "lora_path": made}
        headers = {"authorization": f"Bearer {rig.inference}"}
        answer = await rig.http.post(path, json=body, headers=headers)
        assert answer.status_code == 403
        assert "'admin'" in answer.json()["error"]["message"]
    assert await rig.records.adapters() == []


async def test_only_allowed_places_are_read(rig: Rig, tmp_path: Path) -> None:
    outside = write_random_adapter(tmp_path / "outside", rig.model)
    link = rig.allowed / "link"
    link.symlink_to(outside)
    # Nothing is read of them: this would never return.
    os.mkfifo(tmp_path / "adapter_config.json")
    for path in (outside, link, tmp_path, "/nowhere", f"{rig.allowed}-more"):
        said = await rig.post(LOAD, 403, lora_name="sql", lora_path=str(path))
        assert "adapters.allowed_locations" in said
    web = rig.web.url
    for place in ("s3://bucket/a", f"{web}/web", f"{web}/web/allowed-more", f"{web}0/web/allowed"):
        said = await rig.post(LOAD, 403, lora_name="sql", lora_path=place)
        assert "adapters.allowed_locations" in said
    assert rig.web.asked == []
    said = await rig.post(LOAD, 400, lora_name="sql", lora_path=f"{rig.allowed}/../outside")
    assert said.startswith("lora_path lora_path: ")
    assert await rig.records.adapters() == []


async def test_an_adapter_at_a_url_is_loaded(rig: Rig, tmp_path: Path) -> None:
    made = write_random_adapter(tmp_path / "a", rig.model)
    place = f"{rig.web.url}/web/allowed/a"
    said = await rig.post(LOAD, 400, lora_name="sql", lora_path=place)
    assert said.startswith("lora_path lora_path: ")
    assert "has no" in said
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    rig.web.files = {f"allowed/a/{name}": data for name, data in files.items()}
    rig.web.extra = {"allowed/a/SHA256SUMS": sums(files)}
    await rig.post(LOAD, 200, lora_name="sql", lora_path=place)
    assert (await rig.records.get("sql")).location == place
    await rig.post(UNLOAD, 200, lora_name="sql")


async def test_what_cannot_be_used_is_named(rig: Rig, tmp_path: Path) -> None:
    other = write_random_checkpoint(tmp_path / "other", hidden=32)
    narrow = str(write_random_adapter(rig.allowed / "narrow", other))
    made = str(write_random_adapter(rig.allowed / "a", rig.model))
    for body, words in (
        ({"lora_name": "sql", "lora_path": narrow}, "lora_path .*another model"),
        ({"lora_name": "a\nb", "lora_path": made}, "lora_name .*is not the name"),
        ({"lora_name": "base", "lora_path": made}, "lora_name .*base"),
        (
            {"lora_name": "sql", "lora_path": made, "base_model_name": "none"},
            "base_model_name .*'none' is no model",
        ),
        ({"lora_name": "sql"}, "lora_path"),
        ({"lora_name": "sql", "lora_path": made, "rank": 3}, "rank"),
    ):
        said = await rig.post(LOAD, 400, **body)
        assert re.search(words, said), said
    assert await rig.records.adapters() == []
