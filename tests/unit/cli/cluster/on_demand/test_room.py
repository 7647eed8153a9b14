"""How many models have workers at the same time, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from baton.cli.cluster.local.models.local_model import LocalModel
from baton.cli.cluster.local.models.memory import require_memory
from baton.cli.cluster.local.on_demand.room import OnDemandRoom, largest, room_of
from baton.cli.cluster.local.plan import plan
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.settings import EngineSettings, StartupError
from baton.settings.file import on_demand_in

MODELS = [LocalModel(name, Path(f"/m/{name}"), 0, 0, count) for name, count in [("a", 1), ("b", 3)]]


def test_it_is_as_the_options_say() -> None:
    assert room_of(ClusterOptions(), MODELS) is None
    assert room_of(ClusterOptions(on_demand=1), MODELS) == OnDemandRoom(1, 30.0)
    assert room_of(ClusterOptions(on_demand=1, min_stay=0), MODELS) == OnDemandRoom(1, 0.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_demand": 0}, "--on-demand is 0: it must be at least 1"),
        ({"on_demand": -1}, "--on-demand is -1: it must be at least 1"),
        ({"on_demand": 2}, "--on-demand is 2 and 2 models are named"),
        ({"on_demand": 9}, "--on-demand is 9 and 2 models are named"),
        ({"on_demand": 1, "min_stay": -1}, "--min-stay is -1: it must be from 0 to 86400"),
        ({"on_demand": 1, "min_stay": 1e9}, "--min-stay is 1e"),
        ({"on_demand": 1, "min_stay": float("nan")}, "--min-stay is nan"),
        ({"on_demand": 1, "autoscale": "1:2"}, "cannot be used with --autoscale"),
        ({"on_demand": 1, "pin": True}, "cannot be used with --pin"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        room_of(ClusterOptions(**options), MODELS)


def test_one_model_takes_no_turns() -> None:
    with pytest.raises(CommandError, match="--on-demand is 1 and 1 model is named"):
        room_of(ClusterOptions(on_demand=1), MODELS[:1])


def test_cores_are_shared_by_the_models_that_run() -> None:
    room = OnDemandRoom(1, 30.0)
    assert [model.name for model in largest(MODELS, room)] == ["b"]
    specs = plan(ClusterOptions(), MODELS, ("127.0.0.1:1",), range(6), room=room)
    threads = {spec.settings.get("BATON_ENGINE_THREADS") for spec in specs if spec.model}
    assert threads == {"2"}


def test_memory_is_that_of_the_largest_models() -> None:
    engines = [("a", EngineSettings(kind="sim", kv_bytes=4 << 20))]
    engines += [("b", EngineSettings(kind="sim", kv_bytes=6 << 20))]
    require_memory(engines, 1 << 20, lambda: 7 << 20, 1)
    with pytest.raises(CommandError, match="workers of b 6 MiB, the store 1 MiB need 7 MiB"):
        require_memory(engines, 1 << 20, lambda: 6 << 20, 1)


def test_a_settings_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "baton.toml"
    path.write_text('[models]\non_demand = 2\nmin_stay_seconds = 5\n[models.a]\npath = "/m"\n')
    given = on_demand_in(path)
    assert (given.on_demand, given.min_stay_seconds) == (2, 5.0)
    path.write_text('[models.on_demand]\npath = "/m"\n')
    assert on_demand_in(path).on_demand is None, "a model of that name"
    path.write_text("[models]\non_demand = 0\n")
    with pytest.raises(StartupError, match=r"models\.on_demand is '0': should be greater"):
        on_demand_in(path)
