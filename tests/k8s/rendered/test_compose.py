"""compose.yaml: what each of its processes makes of its settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import baton
from baton.settings import SERVICE_SETTINGS, fields_of, load_with_sources

COMPOSE = yaml.safe_load((Path(__file__).resolve().parents[3] / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]

# What a process's libraries read, and no setting says: how OpenMP's threads wait for each other.
LIBRARY_VARIABLES = {"prefill": {"OMP_WAIT_POLICY"}, "decode": {"OMP_WAIT_POLICY"}}

# The picker is asked by a Gateway of Kubernetes, which compose has not.
PROCESSES = tuple(name for name in SERVICE_SETTINGS if name != "picker")


def test_it_has_every_process_and_an_etcd() -> None:
    assert set(SERVICES) == {*PROCESSES, "etcd"}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_gets_settings_that_it_has(name: str) -> None:
    service = SERVICES[name]
    assert service["command"] == ["serve", name]
    given = service["environment"]
    settings_of_it = {field.env for field in fields_of(SERVICE_SETTINGS[name])}
    assert set(given) - settings_of_it == LIBRARY_VARIABLES.get(name, set())
    settings: Any = load_with_sources(SERVICE_SETTINGS[name], (), name, given).settings
    assert settings.advertise_host == name, "others reach it by its name"
    assert settings.etcd.endpoints == ("etcd:2379",)


def test_the_memory_of_the_store_is_its_workers_too() -> None:
    (volume,) = COMPOSE["volumes"]
    options = COMPOSE["volumes"][volume]["driver_opts"]
    assert options["type"] == "tmpfs"
    assert "uid=65532" in options["o"].split(","), "the user of the image"
    mounts = {name: service.get("volumes", []) for name, service in SERVICES.items()}
    (mounted,) = mounts.pop("kvstore")
    assert {name for name, there in mounts.items() if there == [mounted]} == {"prefill", "decode"}
    store = SERVICES["kvstore"]["environment"]
    assert mounted == f"{volume}:{store['BATON_STORE_ARENA_DIR']}"
    for name in ("prefill", "decode"):
        assert SERVICES[name]["environment"]["BATON_KV_STORE_ID"] == store["BATON_INSTANCE_ID"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_may_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["image"].endswith(f":{baton.__version__}")
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    longest = max(kind().drain_seconds + kind().close_seconds for kind in SERVICE_SETTINGS.values())
    assert int(service["stop_grace_period"].removesuffix("s")) > longest
