"""What administration refuses, to whom, and in which words; and that it tells no secret."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from baton.cluster import keys as names
from baton.cluster.etcd.local import LocalEtcd
from baton.errors import Reason
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Scope, Tier
from services.frontend.admin.routes import MAX_BODY_BYTES, actions
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import within
from tests.support.network.proxy import TcpProxy
from tests.support.processes.process import ServiceSpawner
from tests.support.wait import eventually

BASE = "/v1/organization"
MAX = 10**15

# method, path, body, reason, field; @ stands for a project of the tenant, # for another tenant's.
BAD: list[tuple[str, str, Any, Reason, str | None]] = [
    ("GET", "/nothing", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/@/nothing", None, Reason.NOT_FOUND, None),
    ("DELETE", "/projects/@", None, Reason.METHOD_NOT_ALLOWED, None),
    ("POST", "/audit_logs", {}, Reason.METHOD_NOT_ALLOWED, None),
    ("GET", "/projects/#", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/proj_0000000000000000", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/../tenants/acme", None, Reason.NOT_FOUND, None),
    ("POST", "/projects/#", {"name": "mine"}, Reason.NOT_FOUND, None),
    ("POST", "/projects/#/archive", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/#/api_keys", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/#/service_accounts", None, Reason.NOT_FOUND, None),
    ("POST", "/projects/#/service_accounts", {"name": "x"}, Reason.NOT_FOUND, None),
    ("GET", "/projects/@/api_keys/#key", None, Reason.NOT_FOUND, None),
    ("DELETE", "/projects/@/api_keys/#key", None, Reason.NOT_FOUND, None),
    ("DELETE", "/projects/#/api_keys/#key", None, Reason.NOT_FOUND, None),
    ("DELETE", "/admin_api_keys/#admin", None, Reason.NOT_FOUND, None),
    ("GET", "/admin_api_keys/#key", None, Reason.NOT_FOUND, None),
    ("GET", "/projects/@/service_accounts/svc_acct_0", None, Reason.NOT_FOUND, None),
    ("DELETE", "/projects/@/service_accounts/svc_acct_0", None, Reason.NOT_FOUND, None),
    ("GET", "/projects?limit=0", None, Reason.INVALID_FIELD, "limit"),
    ("GET", "/projects?limit=101", None, Reason.INVALID_FIELD, "limit"),
    ("GET", "/projects?limit=-1", None, Reason.INVALID_FIELD, "limit"),
    ("GET", "/projects?limit=٣", None, Reason.INVALID_FIELD, "limit"),
    ("GET", "/projects?limit=1&limit=2", None, Reason.INVALID_FIELD, "limit"),
    ("GET", "/projects?page=2", None, Reason.INVALID_FIELD, "page"),
    ("GET", "/projects?include_archived=yes", None, Reason.INVALID_FIELD, "include_archived"),
    ("GET", f"/projects?after={'x' * 200}", None, Reason.INVALID_FIELD, "after"),
    ("GET", f"/projects?{'&'.join(['after=x'] * 200)}", None, Reason.INVALID_FIELD, "query"),
    ("GET", "/admin_api_keys?order=up", None, Reason.INVALID_FIELD, "order"),
    ("GET", "/audit_logs?effective_at[gt]=-1", None, Reason.INVALID_FIELD, "effective_at[gt]"),
    ("GET", "/audit_logs?actor_emails[]=a@b", None, Reason.INVALID_FIELD, "actor_emails"),
    ("POST", "/projects", None, Reason.MALFORMED_BODY, None),
    ("POST", "/projects", [], Reason.MALFORMED_BODY, None),
    ("POST", "/projects", {}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects", {"name": ""}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects", {"name": 5}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects", {"name": "Our Team"}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects", {"name": "a" * 64}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects", {"name": "default"}, Reason.ALREADY_EXISTS, None),
    ("POST", "/projects", {"name": "x", "colour": 1}, Reason.INVALID_FIELD, "colour"),
    ("POST", "/projects", {"name": "x", "tenant": "other"}, Reason.INVALID_FIELD, "tenant"),
    (
        *("POST", "/projects", {"name": "x", "geography": "EU"}),
        *(Reason.UNSUPPORTED_PARAMETER, "geography"),
    ),
    ("POST", "/projects", {"name": "a" * MAX_BODY_BYTES}, Reason.BODY_TOO_LARGE, None),
    ("POST", "/projects/@", {"name": "A"}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects/@/service_accounts", {"name": ""}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects/@/service_accounts", {"name": "x" * 129}, Reason.INVALID_FIELD, "name"),
    ("POST", "/projects/@/service_accounts", {"name": "a\nb"}, Reason.INVALID_FIELD, "name"),
    *(
        (
            *("POST", "/projects/@/service_accounts", {"name": "x", "expires_in_seconds": value}),
            *(Reason.INVALID_FIELD, "expires_in_seconds"),
        )
        for value in (-1, 0, MAX, 1.5, "1h")
    ),
    (
        "POST",
        "/projects/@/service_accounts",
        {"name": "x", "expires_in_seconds": 5, "create_service_account_only": True},
        *(Reason.INVALID_FIELD, "expires_in_seconds"),
    ),
    (
        *("POST", "/projects/@/service_accounts/@account/api_keys", {"scopes": ["admin"]}),
        *(Reason.INVALID_FIELD, "scopes"),
    ),
    *(
        ("POST", "/projects/@/rate_limits/rl-all-models", {name: value}, Reason.INVALID_FIELD, name)
        for name in ("max_requests_per_1_minute", "max_tokens_per_1_minute")
        for value in (-1, 0, MAX, "many")
    ),
    (
        *("POST", "/projects/@/rate_limits/rl-all-models", {"max_requests_per_1_day": 5}),
        *(Reason.UNSUPPORTED_PARAMETER, "max_requests_per_1_day"),
    ),
    ("POST", "/projects/@/rate_limits/rl-other", {}, Reason.NOT_FOUND, None),
    ("POST", "/projects/#/rate_limits/rl-all-models", {}, Reason.NOT_FOUND, None),
    ("GET", "/projects/#/rate_limits", None, Reason.NOT_FOUND, None),
    ("POST", "/admin_api_keys", {"name": "x" * 129}, Reason.INVALID_FIELD, "name"),
    ("POST", "/admin_api_keys", {"name": "x", "scopes": []}, Reason.INVALID_FIELD, "scopes"),
]


async def test_bad_input_is_refused_by_name(keys: Keys) -> None:
    _, secret = await keys.key(scopes=("admin",))
    await keys.tenant("other")
    other_key, _ = await keys.key("other")
    other_admin, _ = await keys.key("other", scopes=("admin",))
    mine = await keys.admin.find_project("acme", "default")
    account = await keys.admin.create_account(mine, "a")
    theirs = await keys.admin.find_project("other", "default")
    before = await keys.admin.projects()
    wrong = []
    async with httpx.AsyncClient(base_url=keys.stage.http_url, headers=bearer(secret)) as client:
        for method, path, body, reason, field in BAD:
            asked = path.replace("#admin", other_admin).replace("#key", other_key)
            asked = asked.replace("@account", account.id)
            asked = BASE + asked.replace("@", mine.id).replace("#", theirs.id)
            content = None if body is None else json.dumps(body)
            headers = {"content-type": "application/json"}
            answer = await client.request(method, asked, content=content, headers=headers)
            told = answer.json()["error"]
            said = (answer.status_code, told["code"], told["param"])
            if said != (reason.http_status, reason.openai_code, field):
                wrong.append((method, path, said, told["message"]))
    assert wrong == []
    assert await keys.admin.projects() == before
    assert {one.id for one in await keys.admin.keys() if not one.revoked_seconds} >= {
        *(other_key, other_admin)
    }


async def test_only_a_key_for_administration_is_taken(keys: Keys) -> None:
    _, inference = await keys.key(scopes=("inference", "usage"))
    revoked_id, revoked = await keys.key(scopes=("admin",))
    await keys.admin.revoke_key(revoked_id)
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:

        async def told(secret: str) -> set[tuple[int, str]]:
            asked = [
                await client.request(action.method, action.template, headers=bearer(secret))
                for action in actions()
                if action.needs == (Scope.ADMIN,)
            ]
            return {(one.status_code, one.json()["error"]["code"]) for one in asked}

        assert await told(inference) == {(403, "permission_denied")}

        async def is_revoked() -> bool:
            return await told(revoked) == {(401, "invalid_api_key")}

        async with within(2):
            await eventually(is_revoked)


async def test_without_keys_administration_says_what_it_needs(stage: Any) -> None:
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for action in actions():
            answer = await client.request(action.method, action.template)
            assert answer.status_code == 400
            told = answer.json()["error"]
            assert told["code"] == "failed_precondition"
            assert "auth.mode to keys" in told["message"]


async def test_while_etcd_is_away_it_says_so_and_requests_go_on(
    empty_stage: Any, etcd: LocalEtcd
) -> None:
    stage = empty_stage
    admin = Administration(stage.client, stage.cluster)
    await admin.create_tenant("acme", Tier.PRO)
    project = await admin.find_project("acme", "default")
    _, secret = await admin.create_key(project, ("admin", "inference"))
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy(etcd.endpoints[0]))
        await stage.set(
            {"auth.mode": "keys", "etcd.endpoints": (proxy.address,), "etcd.timeout_seconds": 1}
        )
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=stage.http_url, headers=bearer(secret))
        )
        assert (await client.get(f"{BASE}/projects")).status_code == 200
        await proxy.cut()
        for method, path in (("GET", "/projects"), ("POST", "/projects"), ("GET", "/audit_logs")):
            body = {"name": "new"} if method == "POST" else None
            async with within(6):
                answer = await client.request(method, BASE + path, json=body)
            assert answer.status_code == 503
            told = answer.json()["error"]
            assert (told["code"], answer.headers["retry-after"]) == ("unavailable", "1")
            assert "etcd" in told["message"]
            assert ("may have taken effect" in told["message"]) == (method == "POST")
            assert (await client.get("/v1/models")).status_code == 200
        await proxy.mend()

        async def made() -> bool:
            answer = await client.post(f"{BASE}/projects", json={"name": "new"})
            return answer.status_code == 200

        await eventually(made)
        await stage.frontend.stop()


async def test_requests_beyond_the_bound_are_refused(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.frontend.admin.routes.MAX_AT_ONCE", 2)
    _, secret = await keys.key(scopes=("admin",))
    async with httpx.AsyncClient(base_url=keys.stage.http_url, headers=bearer(secret)) as client:
        answers = await asyncio.gather(
            *(client.post(f"{BASE}/projects", json={"name": f"p{n}"}) for n in range(12))
        )
        statuses = [one.status_code for one in answers]
        assert set(statuses) == {200, 503}
        assert all("retry-after" in one.headers for one in answers if one.status_code == 503)
        made = (await client.get(f"{BASE}/projects")).json()["data"]
        assert len(made) == 1 + statuses.count(200)


async def test_a_secret_is_nowhere_but_in_its_answer(
    keys: Keys, spawn_service: ServiceSpawner
) -> None:
    first_id, first = await keys.key(scopes=("admin",))
    env = {
        "BATON_AUTH_MODE": "keys",
        "BATON_TELEMETRY_LOG_LEVEL": "debug",
        "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "0",
    }
    frontend = await spawn_service("frontend", env)
    url = f"http://{frontend.instance.http_address}{BASE}"
    async with httpx.AsyncClient(base_url=url, headers=bearer(first)) as client:
        project = (await client.get("/projects")).json()["data"][0]["id"]
        accounts = f"/projects/{project}/service_accounts"
        made = (await client.post(accounts, json={"name": "a"})).json()
        more = (await client.post(f"{accounts}/{made['id']}/api_keys", json={})).json()
        second = (await client.post("/admin_api_keys", json={"name": "b"})).json()
        secrets = [first, made["api_key"]["value"], more["value"], second["value"]]
        paths = ["/projects", accounts, f"{accounts}/{made['id']}", f"/projects/{project}/api_keys"]
        paths += [f"/projects/{project}/api_keys/{more['id']}", "/admin_api_keys", "/audit_logs"]
        paths += [f"/admin_api_keys/{second['id']}", f"/admin_api_keys/{secrets[1]}"]
        told = [(await client.get(path)).text for path in paths]
        for path in (f"{accounts}/{made['id']}", f"/admin_api_keys/{second['id']}"):
            told.append((await client.delete(path)).text)
    told.append(json.dumps(await frontend.metrics()))
    assert await frontend.stop() == 0
    log = frontend.log_path.read_text()
    assert log.count("tenancy.record.changed") == 6
    assert first_id in log
    told.append(log)
    for prefix in (names.audit(keys.stage.cluster, "acme"), names.tenancy(keys.stage.cluster)):
        pairs, _ = await keys.stage.client.list(prefix)
        assert len(pairs) >= 3
        told += [value.decode() for _, value in pairs]
    for secret in secrets:
        assert len(secret) == 52
        assert not [text for text in told if secret in text]
