"""Secrets: from files, never shown."""

from pathlib import Path

import pytest

from baton.settings import (
    SERVICE_SETTINGS,
    RouterSettings,
    StartupError,
    describe,
    fields_of,
    load_with_sources,
)

NAME = "BATON_TELEMETRY_OTLP_HEADERS"
VALUE = "authorization=Bearer open-sesame"


def secret_file(path: Path, text: str = VALUE, mode: int = 0o400) -> Path:
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def header(**environ: str) -> str:
    loaded = load_with_sources(RouterSettings, environ=environ)
    assert loaded.warnings == ()
    return loaded.settings.telemetry.otlp_headers.get_secret_value()


def test_secret_comes_from_the_environment_a_named_file_or_a_directory(tmp_path):
    alone = secret_file(tmp_path / "alone")
    secret_file(tmp_path / "telemetry.otlp_headers", "a=1")
    (tmp_path / "alone").rename(tmp_path.parent / "alone")
    assert header(**{NAME: VALUE}) == VALUE
    assert header(**{f"{NAME}_FILE": str(tmp_path.parent / alone.name)}) == VALUE
    assert header(BATON_SECRETS_DIR=str(tmp_path)) == "a=1"
    assert header(BATON_SECRETS_DIR=str(tmp_path), **{NAME: VALUE}) == VALUE


def test_secret_is_hidden_and_its_source_is_told(tmp_path):
    path = secret_file(tmp_path / "headers")
    loaded = load_with_sources(RouterSettings, ["--telemetry-otlp-headers-file", str(path)])
    (row,) = [row for row in describe(loaded) if row.name.secret]
    assert (row.value, row.source) == ("********", "flag")
    assert "sesame" not in repr(loaded)
    loaded = load_with_sources(RouterSettings, environ={f"{NAME}_FILE": str(path)})
    (row,) = [row for row in describe(loaded) if row.name.secret]
    assert (row.value, row.source, row.place) == ("********", "secret", str(path))


def test_no_error_shows_a_secret():
    with pytest.raises(StartupError, match="header 1 is not name=value") as refused:
        header(**{NAME: "open sesame"})
    assert "sesame" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_secret_given_twice_is_refused(tmp_path):
    path = secret_file(tmp_path / "headers")
    with pytest.raises(StartupError, match=f"{NAME} and {NAME}_FILE are both set"):
        header(**{NAME: VALUE, f"{NAME}_FILE": str(path)})


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o400, "is empty"),
        (VALUE, 0o406, "writable by all users: run chmod o-w"),
        ("x" * 70_000, 0o400, "exceeds the limit of 65536 bytes"),
    ],
)
def test_file_that_cannot_be_a_secret_is_refused(tmp_path, text, mode, sentence):
    path = secret_file(tmp_path / "headers", text, mode)
    with pytest.raises(StartupError, match=sentence):
        header(**{f"{NAME}_FILE": str(path)})


def test_file_or_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StartupError, match=f"nowhere cannot be read .*: see {NAME}_FILE"):
        header(**{f"{NAME}_FILE": str(tmp_path / "nowhere")})
    with pytest.raises(StartupError, match=r"nowhere cannot be read .*: see BATON_SECRETS_DIR"):
        header(BATON_SECRETS_DIR=str(tmp_path / "nowhere"))


def test_what_is_odd_is_told_and_not_refused(tmp_path):
    secret_file(tmp_path / "telemetry.otlp_headers", mode=0o444)
    secret_file(tmp_path / "telemetry.otlp_header")
    (tmp_path / "..data").mkdir()
    loaded = load_with_sources(RouterSettings, environ={"BATON_SECRETS_DIR": str(tmp_path)})
    unknown, readable = loaded.warnings
    assert "did you mean telemetry.otlp_headers?" in unknown
    assert "readable by all users" in readable


def test_no_flag_takes_a_secret():
    for settings_type in SERVICE_SETTINGS.values():
        for name in fields_of(settings_type):
            assert name.flag.endswith("-file") == name.secret
