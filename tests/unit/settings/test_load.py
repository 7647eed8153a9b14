"""Settings: where values come from, and what a person reads when one is wrong."""

import re
from pathlib import Path

import pytest

from baton.host.service_variables import service_variables
from baton.settings import (
    SERVICE_SETTINGS,
    DecodeSettings,
    FrontendSettings,
    GrpcSettings,
    KvStoreSettings,
    PrefillSettings,
    RouterSettings,
    StartupError,
    WorkerSettings,
    describe,
    fields_of,
    load,
    load_with_sources,
    misspelled,
)


def test_flag_wins_over_environment_and_that_over_default(monkeypatch):
    monkeypatch.setenv("BATON_GRPC_PORT", "1234")
    monkeypatch.setenv("BATON_HTTP_PORT", "8001")
    settings = load(FrontendSettings, ["--grpc-port", "4321"])
    assert settings.grpc.port == 4321
    assert settings.http.port == 8001
    assert settings.http.host == "127.0.0.1"


def test_one_value_of_a_group_leaves_the_class_defaults_of_the_others(monkeypatch):
    monkeypatch.setenv("BATON_GRPC_REFLECTION", "true")
    settings = load(FrontendSettings)
    assert (settings.grpc.port, settings.grpc.reflection) == (50051, True)


def test_group_is_what_stands_before_the_first_underscore(monkeypatch):
    monkeypatch.setenv("BATON_ENGINE_SIM_DECODE_STEP_SECONDS", "0.25")
    monkeypatch.setenv("BATON_ETCD_LEASE_SECONDS", "7")
    settings = load(WorkerSettings)
    assert settings.engine.sim_decode_step_seconds == 0.25
    assert settings.etcd.lease_seconds == 7


def test_lists_sizes_and_paths_are_read(monkeypatch):
    monkeypatch.setenv("BATON_ETCD_ENDPOINTS", "10.0.0.1:2379, 10.0.0.2:2379")
    monkeypatch.setenv("BATON_ENGINE_KV_BYTES", "2GiB")
    monkeypatch.setenv("BATON_ENGINE_MODEL", "/models/tiny")
    monkeypatch.setenv("BATON_ENGINE_CORES", "7, 0-2")
    monkeypatch.setenv("BATON_ENGINE_ADAPTERS", "sql=/a/sql, org/chat.v2=/b=c")
    settings = load(WorkerSettings)
    assert settings.etcd.endpoints == ("10.0.0.1:2379", "10.0.0.2:2379")
    assert settings.engine.kv_bytes == 2 * 1024**3
    assert settings.engine.model == Path("/models/tiny")
    assert settings.engine.cores == (0, 1, 2, 7)
    assert settings.engine.adapters == {"sql": Path("/a/sql"), "org/chat.v2": Path("/b=c")}
    store = load(
        KvStoreSettings,
        ["--store-arena-bytes", "1048576", "--store-tenant-bytes", "acme=1GiB, b=2MiB"],
    ).store
    assert store.arena_bytes == 1048576
    assert store.tenant_bytes == {"acme": 1024**3, "b": 2 * 1024**2}


def test_a_tier_that_is_not_named_keeps_its_number():
    arguments = ["--queue-tier-weights", "free=2, pro=8", "--queue-tier-floors", "free=0.2"]
    queue = load(RouterSettings, arguments).queue
    assert queue.tier_weights == {"enterprise": 16, "pro": 8, "free": 2}
    assert queue.tier_floors == {"enterprise": 0.5, "pro": 0.1, "free": 0.2}
    assert load(RouterSettings).queue.tier_order == "weighted"


def test_roles_default_to_the_process():
    assert load(PrefillSettings).role == "prefill"
    assert load(DecodeSettings).role == "decode"
    assert load(DecodeSettings, ["--role", "combined"]).role == "combined"


@pytest.mark.parametrize(
    ("settings_type", "arguments", "words"),
    [
        (RouterSettings, ["--grpc-port", "70000"], ["grpc.port", "'70000'", "65535"]),
        (RouterSettings, ["--etcd-endpoints", "nowhere"], ["etcd.endpoints", "host:port"]),
        (RouterSettings, ["--queue-tier-weights", "gold=2"], ["queue.tier_weights", "'gold'"]),
        (RouterSettings, ["--queue-tier-weights", "free=0"], ["queue.tier_weights", "0.001"]),
        (RouterSettings, ["--queue-tier-weights", "free"], ["queue.tier_weights", "tier=number"]),
        (
            RouterSettings,
            ["--queue-tier-floors", "free=0.5"],
            ["queue.tier_floors", "add up to 1.1"],
        ),
        (
            RouterSettings,
            ["--queue-tier-floors", "enterprise=1,pro=0,free=0"],
            ["queue.tier_floors", "leaves nothing for pro and free", "less than 1 in sum"],
        ),
        (RouterSettings, ["--etcd-endpoints", ""], ["etcd.endpoints", "at least one"]),
        (RouterSettings, ["--etcd-cluster", "a/b"], ["etcd.cluster", "pattern"]),
        (RouterSettings, ["--drain-seconds", "soon"], ["drain_seconds", "'soon'", "number"]),
        (KvStoreSettings, ["--store-arena-bytes", "1 parsec"], ["store.arena_bytes", "parsec"]),
        (KvStoreSettings, ["--store-tenant-bytes", "acme"], ["store.tenant_bytes", "name=bytes"]),
        (KvStoreSettings, ["--store-tenant-bytes", "a=1 parsec"], ["store.tenant_bytes", "parsec"]),
        (KvStoreSettings, ["--store-disk-bytes", "-1"], ["store.disk_bytes", "0"]),
        (WorkerSettings, ["--engine-kind", "magic"], ["engine.kind", "'torch', 'sim' or 'vllm'"]),
        (WorkerSettings, ["--engine-cores", "two"], ["engine.cores", "'two'", "0-3"]),
        (WorkerSettings, ["--engine-cores", "3-1"], ["engine.cores", "'3-1'", "0-4095"]),
        (WorkerSettings, ["--engine-max-running", "0"], ["engine.max_running", "equal to 1"]),
        (WorkerSettings, ["--engine-adapters", "sql"], ["engine.adapters", "name=directory"]),
        (WorkerSettings, ["--engine-adapters", "a=/x,a=/y"], ["engine.adapters", "twice"]),
        (WorkerSettings, ["--engine-adapters", "../a=/x"], ["engine.adapters", "pattern"]),
        (
            WorkerSettings,
            ["--engine-adapters", ",".join(f"a{i}=/x" for i in range(65))],
            ["engine.adapters", "64 items"],
        ),
        (WorkerSettings, ["--engine-max-adapter-rank", "513"], ["max_adapter_rank", "512"]),
    ],
)
def test_wrong_value_is_a_sentence_with_name_value_limit_and_remedy(
    settings_type, arguments, words
):
    with pytest.raises(StartupError) as refused:
        load(settings_type, arguments)
    sentence = str(refused.value)
    env = "BATON_" + arguments[0].removeprefix("--").replace("-", "_").upper()
    for word in [*words, env, arguments[0]]:
        assert word in sentence


def test_setting_that_a_group_does_not_have_is_refused(monkeypatch):
    monkeypatch.setenv("BATON_HTTP_PROT", "8000")
    with pytest.raises(StartupError, match=r"BATON_HTTP_PROT .* mean BATON_HTTP_PORT"):
        load(FrontendSettings)


def test_settings_of_other_processes_are_let_be(monkeypatch):
    monkeypatch.setenv("BATON_HTTP_PORT", "8001")
    monkeypatch.setenv("BATON_PARENT_PID", "1")
    monkeypatch.setenv("BATON_STORE_ARENA_BYTES", "1GiB")
    load(RouterSettings)


GROUPS = sorted({name.path[0] for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)})


def of_service(name: str) -> dict[str, str]:
    """Return what Kubernetes sets for a Service with two ports, one of them named."""
    prefix, address = name.upper().replace("-", "_"), "tcp://10.0.0.1:9000"
    return {
        f"{prefix}_SERVICE_HOST": "10.0.0.1",
        f"{prefix}_SERVICE_PORT": "9000",
        f"{prefix}_SERVICE_PORT_GRPC": "9000",
        f"{prefix}_PORT": address,
        f"{prefix}_PORT_9000_TCP": address,
        f"{prefix}_PORT_9000_TCP_PROTO": "tcp",
        f"{prefix}_PORT_9000_TCP_PORT": "9000",
        f"{prefix}_PORT_9000_TCP_ADDR": "10.0.0.1",
        f"{prefix}_PORT_53_UDP": "udp://[fd00::1]:53",
    }


@pytest.mark.parametrize("settings_type", SERVICE_SETTINGS.values())
def test_what_kubernetes_adds_for_services_is_no_setting(settings_type):
    environ: dict[str, str] = {}
    for name in ("baton", "baton-grpc-advertise", *(f"baton-{group}" for group in GROUPS)):
        environ |= of_service(name)
    assert "BATON_GRPC_PORT" in environ
    assert misspelled(environ) == []
    loaded = load_with_sources(settings_type, environ=environ)
    assert loaded.given == {}
    assert loaded.settings == settings_type()


def test_no_setting_is_called_as_kubernetes_calls_its_variables():
    names = {name.env for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)}
    assert service_variables(dict.fromkeys(names, "9000")) == frozenset()


@pytest.mark.parametrize("value", ["9000", "", "tcp:9000", "http://10.0.0.1:9000"])
def test_variable_that_kubernetes_does_not_set_is_still_an_error(value):
    with pytest.raises(StartupError, match="BATON_HTTP_PROT_PORT"):
        load_with_sources(FrontendSettings, environ={"BATON_HTTP_PROT_PORT": value})


@pytest.mark.parametrize("part", ["HOST", "PORT"])
def test_renamed_setting_is_refused_with_its_new_name(part, tmp_path):
    with pytest.raises(StartupError, match=f"did you mean BATON_OPS_{part}"):
        load_with_sources(RouterSettings, environ={f"BATON_TELEMETRY_METRICS_{part}": "9000"})
    file = tmp_path / "baton.toml"
    file.write_text(f"[telemetry]\nmetrics_{part.lower()} = 9000\n")
    with pytest.raises(StartupError, match=f"did you mean ops.{part.lower()}"):
        load_with_sources(RouterSettings, environ={"BATON_CONFIG": str(file)})


def test_setting_of_another_process_is_refused_by_its_old_name(monkeypatch):
    monkeypatch.setenv("BATON_KV_ARENA_BYTES", "1GiB")
    with pytest.raises(StartupError, match="did you mean BATON_STORE_ARENA_BYTES"):
        load(WorkerSettings)


def test_variable_that_looks_like_a_setting_is_reported_and_others_are_let_be():
    names = ["BATON_GRPC_PORTS", "BATON_GRPC_PORT", "BATON_ROUTER_SERVICE_HOST", "HOME"]
    (sentence,) = misspelled(dict.fromkeys(names, "9000"))
    assert sentence == "BATON_GRPC_PORTS is not a setting; did you mean BATON_GRPC_PORT?"


def test_unknown_flag_is_refused_with_a_hint():
    with pytest.raises(StartupError, match=r"--prot.*--help"):
        load(RouterSettings, ["--prot", "1"])


def test_settings_cannot_be_changed():
    settings = load(RouterSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.grpc.port = 1
    with pytest.raises(ValueError, match="frozen"):
        settings.grpc = GrpcSettings()


def test_describe_tells_value_and_source(monkeypatch):
    monkeypatch.setenv("BATON_GRPC_PORT", "1234")
    loaded = load_with_sources(RouterSettings, ["--etcd-cluster", "blue"])
    rows = {row.name.dotted: row for row in describe(loaded)}
    assert (rows["grpc.port"].value, rows["grpc.port"].source) == ("1234", "env")
    assert (rows["etcd.cluster"].value, rows["etcd.cluster"].source) == ("blue", "flag")
    assert (rows["grpc.reflection"].value, rows["grpc.reflection"].source) == ("false", "default")
    assert rows["etcd.endpoints"].name.env == "BATON_ETCD_ENDPOINTS"


@pytest.mark.parametrize("settings_type", [FrontendSettings, WorkerSettings, KvStoreSettings])
def test_every_setting_is_explained(settings_type):
    assert [name.dotted for name in fields_of(settings_type) if not name.help] == []


def test_help_lists_flags_with_their_variables(capsys):
    with pytest.raises(SystemExit) as ended:
        load(WorkerSettings, ["--help"], "decode")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--engine-kv-bytes" in text
    assert "BATON_ENGINE_KV_BYTES" in text


def test_every_setting_is_read_by_some_part():
    root = Path(__file__).parents[3]
    sources = [*root.glob("baton/**/*.py"), *root.glob("services/**/*.py")]
    code = "".join(
        path.read_text() for path in sources if "settings" not in path.relative_to(root).parts
    )
    read = set(re.findall(r"\.(\w+)", code))
    names = {name for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)}
    assert [name.dotted for name in names if name.path[-1] not in read] == []
