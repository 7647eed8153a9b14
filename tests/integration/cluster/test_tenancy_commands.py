"""`baton tenants`, `projects` and `keys` against a real etcd."""

import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.internal.v1.cluster_pb2 import Adapter, Instance
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord, encode
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.secret import digest_of
from tests.support.processes.launcher import Launcher

Call = Callable[..., Awaitable[tuple[int, str, str]]]
SECRET = re.compile(r"sk-baton-[A-Za-z0-9_-]{43}")


@pytest.fixture
async def call(launcher: Launcher, etcd: LocalEtcd, etcd_client: Etcd, cluster: str) -> Call:
    """Runs a command on the test's cluster, which has a process; its exit code, output and
    complaints."""
    await etcd_client.put(keys.instance(cluster, "router-0"), keys.encode(Instance(id="router-0")))
    main = ("-c", "from baton.cli.app import main; main()")
    at = ("--etcd-endpoint", ",".join(etcd.endpoints), "--cluster", cluster)
    return lambda *words: launcher.run((*main, *words, *at), {**os.environ, "COLUMNS": "200"})


async def test_from_the_first_key_to_the_last(call: Call, etcd_client: Etcd, cluster: str) -> None:
    admin = Administration(etcd_client, cluster)

    async def said(*words: str) -> str:
        code, out, err = await call(*words)
        assert (code, err) == (0, ""), err
        return out

    async def read(*words: str) -> Any:
        return json.loads(await said(*words, "--json"))

    first = SECRET.findall(await said("keys", "create", "--admin"))
    (key,) = await admin.keys()
    assert [digest_of(one.encode()) for one in first] == [key.sha256]
    assert key.scopes == ("admin",)
    assert [(one.id, one.tier.value) for one in await admin.tenants()] == [
        ("default", "enterprise")
    ]

    await said("tenants", "create", "acme", "--tier", "free", "--kv-bytes", "1GiB")
    await said("tenants", "set", "acme", "--tier", "pro", "--weight", "4")
    await said("projects", "create", "acme", "search")
    made = await read(
        *("keys", "create", "acme", "--project", "search", "--name", "ranking"),
        *("--scope", "inference", "--scope", "usage", "--model", "small", "--expires", "90d"),
    )
    assert SECRET.fullmatch(made["secret"])
    assert made["scopes"] == ["inference", "usage"]
    assert made["expires_seconds"] - made["created_seconds"] == 90 * 86_400
    limits = ("--requests-per-minute", "60", "--context-tokens", "1000")
    limited = await read("keys", "set", made["id"], *limits)
    assert (limited["requests_per_minute"], limited["context_tokens"]) == (60, 1000)
    assert "60 requests per minute, 1000 context tokens" in await said("keys", "ls")
    unlimited = await read("keys", "set", made["id"], "--context-tokens", "0")
    assert (unlimited["requests_per_minute"], "context_tokens" in unlimited) == (60, False)
    await said("tenants", "set", "acme", "--tokens-per-minute", "5000")
    await said("tenants", "set", "acme", "--budget-per-month", "50.000000001")
    month = month_of(time.time())
    spent = SpendRecord("router", {"frontend": FrontendCharge(1, 7 * 10**9, 2 * 10**9)})
    await etcd_client.put(keys.spent(cluster, month, Subject.TENANT, "acme"), encode(spent))
    assert "2.00 of 50.000000001" in await said("tenants", "ls")
    (budgeted,) = [one for one in await read("tenants", "ls") if one["id"] == "acme"]
    assert budgeted["budget_nanodollars_per_month"] == 50 * 10**9 + 1
    assert (budgeted["spent_nanodollars"], budgeted["reserved_nanodollars"]) == (
        2 * 10**9,
        5 * 10**9,
    )
    await said("projects", "set", "acme", "search", "--requests-at-once", "4")
    (owner,) = [one for one in await admin.tenants() if one.id == "acme"]
    assert (owner.tokens_per_minute, owner.tier.value) == (5000, "pro")
    assert (await admin.find_project("acme", "search")).requests_at_once == 4
    rotated = await read("keys", "rotate", made["id"], "--keep", "1h")
    assert rotated["secret"] != made["secret"]
    assert (await read("keys", "revoke", made["id"]))["revoked_seconds"]
    await said("tenants", "disable", "acme")
    await said("projects", "archive", "acme", "search")

    (tenant,) = [one for one in await read("tenants", "ls") if one["id"] == "acme"]
    assert (tenant["tier"], tenant["kv_bytes"], "disabled_seconds" in tenant) == (
        "pro",
        1 << 30,
        True,
    )
    assert tenant["weight"] == 4
    assert (await read("tenants", "set", "acme", "--weight", "0")).get("weight", 0) == 0
    listed = await read("keys", "ls", "acme")
    assert [(one["id"], one["state"], one["tenant"]) for one in listed] == [
        (made["id"], "revoked", "acme")
    ]
    changes = await read("audit", "ls", "--tenant", "acme", "--event", "api_key")
    assert [one["event"] for one in changes[-2:]] == ["api_key.updated", "api_key.created"]
    assert {one["tenant"] for one in changes} == {"acme"}
    assert changes[-1]["after"]["name"] == "ranking"
    everything = await read("audit", "ls", "--limit", "1000")
    assert {one["tenant"] for one in everything} == {"acme", "default"}
    times = [one["at_seconds"] for one in everything]
    assert times == sorted(times, reverse=True)
    (newest,) = await read("audit", "ls", "--limit", "1", "--event", "project.archived")
    assert newest["event"] == "project.archived"
    told = await said("audit", "ls", "--tenant", "acme")
    assert "tier=free→pro" in told
    assert "operator" in told
    assert not SECRET.search(told)
    projects = await said("projects", "ls", "acme")
    assert "archived" in projects
    text = await said("keys", "ls") + json.dumps(listed)
    assert not SECRET.search(text)
    assert "sha256" not in text


async def test_what_holds_for_classes_is_set_listed_and_told(call: Call) -> None:
    async def read(*words: str) -> Any:
        code, out, err = await call(*words, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out)

    await read("classes", "set", "batch", "--floor", "0.1", "--wait", "--max-wait", "3600")
    await read("classes", "set", "premium", "--floor", "0.6", "--ttft-target", "0.5")
    code, _, err = await call("classes", "set", "interactive", "--floor", "0.4")
    assert (code, "the floors of all classes add up to 1.1" in err) == (2, True), err
    changed = await read("classes", "set", "premium", "--floor", "0", "--deadline", "8")
    assert (changed["floor"], changed["deadline_seconds"]) == (0.0, 8.0)
    classes = {one["id"]: one for one in await read("classes", "ls")}
    assert list(classes) == ["batch", "interactive", "premium"]
    assert (classes["batch"]["waits"], classes["batch"]["max_wait_seconds"]) == (True, 3600.0)
    assert classes["premium"]["ttft_target_seconds"] == 0.5
    assert not any(value for name, value in classes["interactive"].items() if name != "id")
    newest, *_ = await read("audit", "ls", "--event", "priority_class")
    assert (newest["tenant"], newest["resource"]) == ("_cluster", "premium")
    assert (newest["before"], newest["after"]) == ({"floor": 0.6}, {"deadline_seconds": 8.0})
    _, told, _ = await call("classes", "ls")
    assert "ttft target 0.5" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("keys", "create", "nobody"), "no project 'default'"),
        (("keys", "create", "--expires", "soon"), "--expires 'soon' is not a duration"),
        (
            ("keys", "revoke", "key_1"),
            "key 'key_1' does not exist: list keys with `baton keys ls`.",
        ),
        (("tenants", "create", "Big Co"), "lower-case letters"),
        (("tenants", "create", "a", "--kv-bytes", "lots"), "not a size in bytes"),
        (("tenants", "set", "a"), "Nothing to change"),
        (("tenants", "create", "a", "--weight", "-1"), "weight: -1 is out of range: 0 (as 1)"),
        (("classes", "set", "batch"), "Nothing to change: set at least one of --floor"),
        (("classes", "set", "urgent", "--weight", "2"), "priority class 'urgent' does not exist"),
        (
            ("tenants", "create", "a", "--budget-per-month", "1000000001"),
            "--budget-per-month: budget_nanodollars_per_month: 1000000001000000000 is out of range",
        ),
        (
            ("audit", "ls", "--tenant", "nobody"),
            "tenant 'nobody' does not exist: list tenants with `baton tenants ls`",
        ),
        (("keys", "set", "key_1"), "Nothing to change: set at least one of --requests-per-minute"),
        (("keys", "create", "--requests-at-once", "-1"), "requests_at_once: -1 is out of range: 0"),
        (
            ("tenants", "create", "a", "--tokens-per-minute", "1000000000001"),
            "tokens_per_minute: 1000000000001 is out of range",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_a_sentence(
    call: Call, words: tuple[str, ...], sentence: str
) -> None:
    code, _, err = await call(*words)
    assert code == 2
    assert sentence in err


async def test_aliases_are_set_moved_listed_and_removed(
    call: Call, etcd_client: Etcd, cluster: str
) -> None:
    async def read(*words: str) -> Any:
        code, out, err = await call(*words, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out)

    for name in ("small", "org/large"):
        await etcd_client.put(keys.model(cluster, name, "00.00"), b"")
    await etcd_client.put(
        keys.instance(cluster, "decode-0"),
        keys.encode(Instance(id="decode-0", adapters=[Adapter(name="sql")])),
    )
    await read("aliases", "set", "gpt", "small")
    changed = await read("aliases", "set", "gpt", "org/large=95", "sql=5")
    targets = [{"model": "org/large", "weight": 95}, {"model": "sql", "weight": 5}]
    assert changed == {"alias": "gpt", "targets": targets}
    assert await read("aliases", "ls") == [changed]
    _, told, _ = await call("aliases", "ls")
    assert "org/large (0.95), sql (0.05)" in told
    for words, sentence in (
        (("set", "gpt", "smal"), "targets: 'smal' is no model or adapter of this cluster, which"),
        (("set", "small", "sql"), "alias: small is a model or adapter of this cluster"),
        (("set", "other", "gpt", "--allow-missing"), "gpt is an alias itself, of org/large, sql"),
        (("set", "a", "a", "--allow-missing"), "targets: a cannot be an alias of itself"),
        (("set", "a", "small=x"), "'small=x' is not MODEL or MODEL=WEIGHT"),
        (("set", "a", "small=0"), "the weight 0 of small is out of range: 1 to 10000"),
        (("rm", "nobody"), "alias 'nobody' does not exist"),
    ):
        code, _, err = await call("aliases", *words)
        assert (code, sentence in err) == (2, True), err
    await read("aliases", "rm", "gpt")
    assert await read("aliases", "ls") == []
    changes = await read("audit", "ls", "--event", "model_alias")
    assert [one["event"] for one in changes] == [
        "model_alias.removed",
        "model_alias.updated",
        "model_alias.created",
    ]


async def test_rules_of_auto_are_set_listed_and_removed(
    call: Call, etcd_client: Etcd, cluster: str, tmp_path: Path
) -> None:
    async def read(*words: str) -> Any:
        code, out, err = await call(*words, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out)

    def written(text: str, name: str = "rules.toml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    for name in ("small", "large"):
        await etcd_client.put(keys.model(cluster, name, "00.00"), b"")
    await read("aliases", "set", "gpt", "small")
    rules = {"name": "code", "models": ["large", "small"], "code": True, "schema": False}
    text = msgspec.json.encode({"models": ["small"], "rules": [rules]}).decode()
    changed = await read("auto", "set", written(text, "rules.json"))
    assert changed == {"models": ["small"], "rules": [rules]}
    assert await read("auto", "ls") == [changed]
    _, told, _ = await call("auto", "ls")
    assert re.search("code +large, small +code, no schema", told), told
    for text, sentence in (
        ('models = ["smal"]', "models: 'smal' is no model or adapter of this cluster, which has"),
        ('models = ["gpt"]', "models: gpt is an alias: name a model"),
        ("models = []", "models: at least one model is needed, where no rule matches"),
        ("models = 3", "Expected `array`, got `int`"),
        ("models =", "is not TOML"),
        ('model = ["small"]', "'model' is not a field; fields: models, rules, max_wait_seconds"),
        (
            'models = ["small"]\n[[rules]]\nname = "a"\nmodels = ["large"]\nkode = true',
            "rule a: 'kode' is not a field; fields: name, models, cheapest",
        ),
        (
            'models = ["small"]\n[[rules]]\nname = "a"\nmodels = ["large"]',
            "rules: a has no condition, so that no rule after it can match",
        ),
    ):
        code, _, err = await call("auto", "set", written(text))
        assert (code, sentence in err) == (2, True), err
    for words, sentence in (
        (("auto", "small"), "alias: auto chooses a model per request: set its rules with"),
        (("a", "auto", "--allow-missing"), "targets: auto is no model, but chooses one"),
    ):
        code, _, err = await call("aliases", "set", *words)
        assert (code, sentence in err) == (2, True), err
    assert await read("auto", "ls") == [changed]
    await read("auto", "rm")
    assert await read("auto", "ls") == []
    code, _, err = await call("auto", "rm")
    assert (code, "auto has no rules: set them with `baton auto set`" in err) == (2, True), err
    changes = await read("audit", "ls", "--event", "auto_rules")
    assert [one["event"] for one in changes] == ["auto_rules.removed", "auto_rules.created"]
