"""The settings file: which process takes what of it, and what is wrong with one."""

from pathlib import Path

import pytest

from baton.settings import (
    SERVICE_SETTINGS,
    DecodeSettings,
    FrontendSettings,
    KvStoreSettings,
    RouterSettings,
    StartupError,
    describe,
    load,
    load_with_sources,
)

EVERYTHING = """
drain_seconds = 20

[etcd]
endpoints = ["10.0.0.1:2379", "10.0.0.2:2379"]

[grpc]
reflection = true

[engine]
kv_bytes = "2GiB"
cores = [0, 2]

[engine.adapters]
sql = "/adapters/sql"
"org/chat.v2" = "/adapters/chat"

[store.tenant_bytes]
acme = "1GiB"

[frontend]
advertise_host = "front"

[frontend.http]
port = 9000

[decode]
drain_seconds = 60

[decode.engine]
max_running = 8
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "baton.toml"
    path.write_text(EVERYTHING)
    return path


def test_one_file_serves_all_processes(config):
    flags = ["--config", str(config)]
    frontend = load(FrontendSettings, flags, "frontend")
    assert (frontend.http.port, frontend.advertise_host) == (9000, "front")
    assert (frontend.grpc.port, frontend.grpc.reflection) == (50051, True)
    assert frontend.etcd.endpoints == ("10.0.0.1:2379", "10.0.0.2:2379")
    decode = load(DecodeSettings, flags, "decode")
    assert (decode.drain_seconds, frontend.drain_seconds) == (60, 20)
    assert (decode.engine.kv_bytes, decode.engine.max_running) == (2 << 30, 8)
    assert decode.engine.cores == (0, 2)
    assert {name: str(path) for name, path in decode.engine.adapters.items()} == {
        "sql": "/adapters/sql",
        "org/chat.v2": "/adapters/chat",
    }
    assert load(KvStoreSettings, flags, "kvstore").store.tenant_bytes == {"acme": 1 << 30}


def test_flag_wins_over_environment_and_that_over_file(config, monkeypatch):
    monkeypatch.setenv("BATON_CONFIG", str(config))
    monkeypatch.setenv("BATON_HTTP_PORT", "9001")
    monkeypatch.setenv("BATON_DRAIN_SECONDS", "21")
    loaded = load_with_sources(FrontendSettings, ["--http-port", "9002"], "frontend")
    rows = {row.name.dotted: (row.value, row.source) for row in describe(loaded)}
    assert rows["http.port"] == ("9002", "flag")
    assert rows["drain_seconds"] == ("21", "env")
    assert rows["grpc.reflection"] == ("true", "file")
    assert rows["http.host"] == ("127.0.0.1", "default")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fronted.http]\nport = 1", ["fronted", "did you mean frontend?"]),
        ("[frontend.http]\nprot = 1", ["frontend.http.prot", "did you mean frontend.http.port?"]),
        ("[http]\nprot = 1", ["http.prot", "did you mean http.port?"]),
        ("drain_second = 1", ["drain_second", "did you mean drain_seconds?"]),
        ("[router.http]\nport = 1", ["router.http", "not a setting"]),
        ("http = 1", ["http is 1", "table"]),
        ("router = 1", ["router is 1", "table"]),
        ("[http\n", ["not TOML", "line 1"]),
    ],
)
def test_unknown_name_is_refused_by_every_process(tmp_path, text, words):
    path = tmp_path / "baton.toml"
    path.write_text(text)
    for process, settings_type in SERVICE_SETTINGS.items():
        with pytest.raises(StartupError) as refused:
            load(settings_type, [f"--config={path}"], process)
        for word in [str(path), *words]:
            assert word in str(refused.value)


def test_wrong_value_is_the_environments_sentence_with_the_files_name(tmp_path):
    path = tmp_path / "baton.toml"
    path.write_text("[router.grpc]\nport = 70000")
    with pytest.raises(StartupError) as refused:
        load(RouterSettings, [f"--config={path}"], "router")
    with pytest.raises(StartupError) as by_flag:
        load(RouterSettings, ["--grpc-port=70000"], "router")
    same = str(by_flag.value).removesuffix("Set BATON_GRPC_PORT or --grpc-port.")
    assert str(refused.value) == f"{same}Change router.grpc.port in {path}."


def test_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("BATON_CONFIG", str(tmp_path / "nowhere.toml"))
    with pytest.raises(StartupError, match=r"nowhere\.toml cannot be read .*BATON_CONFIG"):
        load(RouterSettings)


def test_no_group_is_named_like_a_process():
    groups = {
        name for settings_type in SERVICE_SETTINGS.values() for name in settings_type.model_fields
    }
    assert groups.isdisjoint(SERVICE_SETTINGS)


def test_the_documents_example_is_right(tmp_path):
    page = (Path(__file__).parents[3] / "docs/configuration.md").read_text()
    path = tmp_path / "baton.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0])
    for process, settings_type in SERVICE_SETTINGS.items():
        load(settings_type, [f"--config={path}"], process)
    assert load(DecodeSettings, [f"--config={path}"], "decode").engine.max_running == 128
