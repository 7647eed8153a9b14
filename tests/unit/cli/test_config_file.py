"""`--config` of the commands: a file that gives options of a cluster their defaults."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from baton.cli.cluster.local.plan import plan, shared_niceness, small_memory
from baton.cli.shared.config_file import given_variables
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions, expand_options
from tests.support.command_line import invoke
from tests.unit.cli.cluster.test_plan import models_of

FILE = """
[etcd]
cluster = "blue"
[engine]
kind = "sim"
[frontend.http]
port = 9000
[decode.engine]
kv_bytes = "1GiB"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "baton.toml"
    path.write_text(FILE)
    return path


def options_of(*arguments: str) -> ClusterOptions:
    seen = []
    command = typer.Typer()

    @command.command()
    @expand_options
    def up(options: ClusterOptions) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, arguments)
    if result.exception is not None:
        raise result.exception
    return seen[0]


def test_options_default_to_the_file_and_win_over_it(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BATON_HTTP_PORT", "BATON_GRPC_PORT", "BATON_ETCD_CLUSTER", "BATON_ENGINE_KIND"):
        monkeypatch.delenv(name, raising=False)
    options = options_of("--config", str(config))
    assert (options.http_port, options.grpc_port) == (9000, 50051)
    assert (options.cluster, options.engine) == ("blue", "sim")
    monkeypatch.setenv("BATON_HTTP_PORT", "9001")
    assert options_of("--config", str(config)).http_port == 9001
    assert options_of("--config", str(config), "--http-port", "9002").http_port == 9002


def test_every_process_of_the_cluster_reads_the_file(config: Path) -> None:
    options = ClusterOptions(config=config)
    for spec in plan(options, models_of(options), (), (0, 1)):
        assert spec.settings["BATON_CONFIG"] == str(config)


def test_memory_that_the_file_gives_is_kept(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATON_ENGINE_KV_BYTES", raising=False)
    given = given_variables(config, "decode")
    assert "BATON_ENGINE_KV_BYTES" in given
    assert "BATON_ENGINE_KV_BYTES" not in small_memory(given)


def test_a_niceness_that_is_given_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BATON_ENGINE_NICE", raising=False)
    path = tmp_path / "baton.toml"
    path.write_text("[decode.engine]\nnice = 0\n")
    assert shared_niceness(given_variables(path, "decode")) == {}
    assert shared_niceness(given_variables(path, "prefill"))


def test_wrong_file_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "baton.toml"
    path.write_text("[fronted]\n")
    with pytest.raises(CommandError, match="did you mean frontend"):
        options_of("--config", str(path))


def test_config_show_tells_which_file_a_value_is_from(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATON_HTTP_PORT", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    result = invoke(["config", "show", "frontend", "--config", str(config)])
    (line,) = [line for line in result.output.splitlines() if "BATON_HTTP_PORT" in line]
    assert line.split() == ["BATON_HTTP_PORT", "file", "9000"]
    assert f"file: {config}" in result.output.splitlines()


def test_the_variable_of_a_model_is_one_value_and_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "baton.toml"
    config.write_text('[engine]\nmodel = "/in/the file"\n')
    monkeypatch.delenv("BATON_ENGINE_MODEL", raising=False)
    assert options_of("--config", str(config)).model == ["/in/the file"]
    monkeypatch.setenv("BATON_ENGINE_MODEL", "/a path/with spaces")
    assert options_of("--config", str(config)).model == ["/a path/with spaces"]
    assert options_of("--model", "/a", "--model", "/b").model == ["/a", "/b"]


def test_models_are_named_in_one_way(tmp_path: Path) -> None:
    config = tmp_path / "baton.toml"
    config.write_text('[decode.engine]\nmodel = "/a"\n[models.b]\npath = "/b"\n')
    with pytest.raises(CommandError, match=r"has engine.model and models.b: .* from one of them"):
        options_of("--config", str(config))
