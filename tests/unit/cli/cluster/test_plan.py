"""What `baton up` would start."""

from pathlib import Path

import pytest

from baton.cli.cluster.local.models.local_model import LocalModel, with_defaults
from baton.cli.cluster.local.models.workers import engine_threads
from baton.cli.cluster.local.plan import plan, shared_niceness
from baton.cli.cluster.local.spec import ProcessSpec, StopOrder, summary
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.settings.models import ModelSettings

MODEL = Path("/models/tiny")


def models_of(options: ClusterOptions) -> list[LocalModel]:
    """One model, as the options alone describe it."""
    given = ModelSettings(path=MODEL, name=options.model_name or None)
    return [with_defaults(given, MODEL, options)]


def specs_of(options: ClusterOptions, cores: int = 2) -> dict[str, ProcessSpec]:
    return {
        spec.id: spec
        for spec in plan(options, models_of(options), ("127.0.0.1:1234",), range(cores))
    }


def test_the_default_cluster_has_every_role() -> None:
    specs = specs_of(ClusterOptions())
    assert sorted(specs) == [
        "decode-0",
        "decode-1",
        "frontend-0",
        "kvstore-0",
        "prefill-0",
        "prefill-1",
        "router-0",
    ]
    for identity, spec in specs.items():
        assert spec.settings["BATON_INSTANCE_ID"] == identity
        assert spec.settings["BATON_ETCD_ENDPOINTS"] == "127.0.0.1:1234"


def test_combined_workers_run_as_decode_with_their_role() -> None:
    spec = specs_of(ClusterOptions(prefill=0, decode=0, combined=1))["combined-0"]
    assert spec.service == "decode"
    assert spec.settings["BATON_ROLE"] == "combined"


def test_only_the_frontend_takes_the_public_ports() -> None:
    specs = specs_of(ClusterOptions(http_port=8001, grpc_port=50052))
    assert specs["frontend-0"].settings["BATON_GRPC_PORT"] == "50052"
    assert specs["frontend-0"].settings["BATON_HTTP_PORT"] == "8001"
    for identity, spec in specs.items():
        if identity != "frontend-0":
            assert spec.settings["BATON_GRPC_PORT"] == "0"
            assert spec.settings["BATON_GRPC_HOST"] == "127.0.0.1"


def test_only_the_frontend_listens_where_it_is_told() -> None:
    specs = specs_of(ClusterOptions(host="0.0.0.0"))
    front = specs["frontend-0"].settings
    assert front["BATON_HTTP_HOST"] == front["BATON_GRPC_HOST"] == "0.0.0.0"
    assert front["BATON_ADVERTISE_HOST"] == "127.0.0.1"
    assert specs["decode-0"].settings["BATON_GRPC_HOST"] == "127.0.0.1"
    front = specs_of(ClusterOptions(host="192.0.2.1"))["frontend-0"].settings
    assert front["BATON_GRPC_HOST"] == "192.0.2.1"
    assert "BATON_ADVERTISE_HOST" not in front


def test_several_frontends_share_the_ports() -> None:
    specs = specs_of(ClusterOptions(frontends=2))
    for identity in ("frontend-0", "frontend-1"):
        settings = specs[identity].settings
        assert settings["BATON_HTTP_PORT"] == "8000"
        assert settings["BATON_HTTP_REUSE_PORT"] == settings["BATON_GRPC_REUSE_PORT"] == "true"
    assert "BATON_HTTP_REUSE_PORT" not in specs_of(ClusterOptions())["frontend-0"].settings
    assert "BATON_GRPC_REUSE_PORT" not in specs["decode-0"].settings


def test_only_frontends_let_tools_list_their_services() -> None:
    specs = specs_of(ClusterOptions(grpc_reflection=True))
    shown = {one for one, spec in specs.items() if "BATON_GRPC_REFLECTION" in spec.settings}
    assert shown == {"frontend-0"}
    assert specs["frontend-0"].settings["BATON_GRPC_REFLECTION"] == "true"
    assert "BATON_GRPC_REFLECTION" not in specs_of(ClusterOptions())["frontend-0"].settings


def test_workers_know_their_store_and_their_model() -> None:
    specs = specs_of(ClusterOptions(model_name="org/tiny", dtype="float32", engine="sim"))
    worker = specs["prefill-1"].settings
    assert worker["BATON_KV_STORE_ID"] == "kvstore-0"
    assert worker["BATON_ENGINE_MODEL"] == str(MODEL)
    assert worker["BATON_ENGINE_KIND"] == "sim"
    assert worker["BATON_ENGINE_DTYPE"] == "float32"
    assert worker["BATON_ENGINE_MODEL_NAME"] == "org/tiny"


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(2, 4, 1), (8, 4, 2), (8, 1, 8), (1, 1, 1)]
)
def test_engines_share_the_cores(cores: int, workers: int, threads: int) -> None:
    assert engine_threads(cores, workers) == threads
    spec = specs_of(ClusterOptions(prefill=0, decode=workers), cores)["decode-0"]
    assert spec.settings["BATON_ENGINE_THREADS"] == str(threads)
    assert spec.settings["OMP_NUM_THREADS"] == str(threads)


@pytest.mark.parametrize(
    ("cores", "prefill", "threads", "waits"),
    [(2, 1, "2", "passive"), (8, 2, "4", "passive"), (2, 2, "1", None)],
)
def test_prefill_engines_read_with_all_cores_unless_pinned(
    cores: int, prefill: int, threads: str, waits: str | None
) -> None:
    reading = specs_of(ClusterOptions(prefill=prefill, decode=1), cores)["prefill-0"].settings
    assert reading["BATON_ENGINE_THREADS"] == reading["OMP_NUM_THREADS"] == threads
    assert reading.get("OMP_WAIT_POLICY") == waits
    assert "BATON_ENGINE_NATIVE_THREADS" not in reading


@pytest.mark.parametrize(
    ("cores", "decode", "threads", "native"),
    [(2, 1, "1", "2"), (8, 3, "2", None), (2, 2, "1", None)],
)
def test_decode_engines_have_all_cores_for_operators_that_wait_for_nobody(
    cores: int, decode: int, threads: str, native: str | None
) -> None:
    decoding = specs_of(ClusterOptions(prefill=1, decode=decode), cores)["decode-0"].settings
    assert decoding["BATON_ENGINE_THREADS"] == decoding["OMP_NUM_THREADS"] == threads
    assert decoding.get("BATON_ENGINE_NATIVE_THREADS") == native
    assert decoding.get("OMP_WAIT_POLICY") == ("passive" if native else None)


@pytest.mark.parametrize(
    ("options", "nice"),
    [
        (ClusterOptions(prefill=1, decode=1), "5"),
        (ClusterOptions(prefill=1, decode=1, pin=True), None),
        (ClusterOptions(prefill=0, decode=1), None),
        (ClusterOptions(prefill=2, decode=2), None),
        (ClusterOptions(prefill=1, decode=1, engine="vllm"), None),
    ],
)
def test_decode_engines_that_share_cores_are_nicer(
    options: ClusterOptions, nice: str | None
) -> None:
    specs = plan(options, models_of(options), (), (0, 1), on_shared_cores=shared_niceness(()))
    found = {spec.id: spec.settings.get("BATON_ENGINE_NICE") for spec in specs}
    assert found.pop("decode-0") == nice
    assert set(found.values()) == {None}


def test_pinned_engines_compute_on_cores_of_their_own() -> None:
    options = ClusterOptions(prefill=1, decode=1, pin=True)
    specs = plan(options, models_of(options), (), (3, 5, 6, 7))
    cores = {spec.id: spec.settings.get("BATON_ENGINE_CORES") for spec in specs}
    assert (cores.pop("prefill-0"), cores.pop("decode-0")) == ("3,5", "6,7")
    assert {spec.settings.get("BATON_ENGINE_THREADS") for spec in specs} == {None, "2"}
    for name in ("OMP_WAIT_POLICY", "BATON_ENGINE_NATIVE_THREADS"):
        assert not any(name in spec.settings for spec in specs)
    assert set(cores.values()) == {None}


def test_too_few_cores_to_pin_are_refused() -> None:
    with pytest.raises(CommandError, match=r"4 workers, .* machine has 2"):
        specs_of(ClusterOptions(pin=True))


def test_clients_stop_before_servers() -> None:
    specs = specs_of(ClusterOptions())
    assert specs["frontend-0"].stop < specs["router-0"].stop
    assert specs["decode-0"].stop < specs["kvstore-0"].stop == StopOrder.STORES


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ClusterOptions(prefill=-1), "--prefill"),
        (ClusterOptions(frontends=0), "--frontends"),
        (ClusterOptions(decode=65), "--decode"),
        (ClusterOptions(decode=0), "--decode 1"),
        (ClusterOptions(http_port=7, grpc_port=7), "share port 7"),
    ],
)
def test_what_makes_no_cluster_is_refused(options: ClusterOptions, said: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        specs_of(options)
    assert caught.value.code == 2


def test_two_free_ports_are_not_the_same_port() -> None:
    assert specs_of(ClusterOptions(http_port=0, grpc_port=0))


def test_the_summary_counts_roles() -> None:
    options = ClusterOptions(prefill=1, decode=3)
    text = summary(plan(options, models_of(options), (), (0, 1)))
    assert text == "1 kvstore, 1 router, 1 prefill, 3 decode, 1 frontend"


def test_models_have_pools_of_their_own_and_workers_have_unique_ids() -> None:
    first = LocalModel("first", MODEL, prefill=1, decode=1, combined=0, dtype="float32")
    second = LocalModel("second", Path("/models/b"), prefill=0, decode=2, combined=1, engine="sim")
    specs = {spec.id: spec for spec in plan(ClusterOptions(), [first, second], (), range(8))}
    of_model = {one: spec.model for one, spec in specs.items() if spec.model}
    assert of_model == {
        "prefill-0": "first",
        "decode-0": "first",
        "decode-1": "second",
        "decode-2": "second",
        "combined-0": "second",
    }
    for name, model in of_model.items():
        settings = specs[name].settings
        assert settings["BATON_ENGINE_MODEL_NAME"] == model
        assert settings["BATON_INSTANCE_ID"] == name
        assert settings["BATON_KV_STORE_ID"] == "kvstore-0"
        assert settings["BATON_ENGINE_THREADS"] == ("8" if name == "prefill-0" else "1"), name
    assert specs["decode-1"].settings["BATON_ENGINE_MODEL"] == "/models/b"
    assert specs["decode-0"].settings["BATON_ENGINE_DTYPE"] == "float32"
    assert specs["combined-0"].settings["BATON_ENGINE_KIND"] == "sim"
    assert "BATON_ENGINE_NATIVE_THREADS" not in specs["decode-1"].settings
    assert specs["decode-0"].settings["BATON_ENGINE_NATIVE_THREADS"] == "2"
    assert sum(spec.service == "router" for spec in specs.values()) == 1
