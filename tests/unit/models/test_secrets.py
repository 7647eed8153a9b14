"""Tokens: where they come from, and that they are not shown."""

from pathlib import Path

import pytest

from baton.host.redaction import redact
from baton.models.errors import PullError
from baton.models.secrets import AccessToken, SourceSecrets, hub_token, read_token_file

TOKEN = "hf_" + "a1B2" * 9


def value(token: AccessToken | None) -> str:
    return token.header() if token is not None else ""


def test_the_nearest_token_is_used(tmp_path: Path) -> None:
    for name in ("given", "named", "token"):
        (tmp_path / name).write_text(f"  {name}-token\n")
    environment = {
        "HF_TOKEN": "of-the-variable",
        "HF_TOKEN_PATH": str(tmp_path / "named"),
        "HF_HOME": str(tmp_path),
    }
    secrets = SourceSecrets(tmp_path / "given", tmp_path)
    assert value(hub_token(secrets, environment, stored=True)) == "Bearer given-token"
    secrets = SourceSecrets(None, tmp_path)
    assert value(hub_token(secrets, environment, stored=True)) == "Bearer token-token"
    (tmp_path / "token").write_text("stored-token")
    secrets = SourceSecrets(None, tmp_path / "none")
    assert value(hub_token(secrets, environment, stored=True)) == "Bearer of-the-variable"
    del environment["HF_TOKEN"]
    assert value(hub_token(secrets, environment, stored=True)) == "Bearer named-token"
    del environment["HF_TOKEN_PATH"]
    assert value(hub_token(secrets, environment, stored=True)) == "Bearer stored-token"
    assert hub_token(secrets, environment, stored=False) is None
    assert hub_token(secrets, {"HF_HOME": str(tmp_path / "none")}, stored=True) is None


def test_a_mounted_secret_may_have_either_file_or_none(tmp_path: Path) -> None:
    secrets = SourceSecrets(None, tmp_path)
    assert secrets.token() is None
    assert secrets.credentials() is None
    (tmp_path / "credentials").write_text("[default]")
    assert secrets.credentials() == tmp_path / "credentials"
    assert SourceSecrets().token() is None


@pytest.mark.parametrize("text", ["", "  \n", "two words", "tökén", "a\nb"])
def test_what_is_no_token_is_refused_without_showing_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(PullError, match="has no token: it must be one word") as raised:
        read_token_file(tmp_path / "token")
    assert not text.strip() or text.strip() not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"token file .*none cannot be read: No such file"):
        read_token_file(tmp_path / "none")


def test_a_token_is_not_in_its_representation() -> None:
    token = AccessToken(TOKEN)
    assert TOKEN not in f"{token!r} {token} {[token]}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Bearer {TOKEN}", "Bearer hf_…"),
        (
            "https://b/k?X-Amz-Credential=AK%2F1&X-Amz-Date=1&X-Amz-Signature=abc",
            "https://b/k?X-Amz-Credential=…&X-Amz-Date=1&X-Amz-Signature=…",
        ),
        (
            '"https://cdn/k?Expires=1&Policy=eyJ&Signature=a~b&Key-Pair-Id=K"',
            '"https://cdn/k?Expires=1&Policy=…&Signature=…&Key-Pair-Id=…"',
        ),
        ("key sk-baton-abcdefghijkl", "key sk-baton-…"),
        ("pip install hf_transfer and hf_xet", "pip install hf_transfer and hf_xet"),
    ],
)
def test_secrets_are_redacted(text: str, shown: str) -> None:
    assert redact(text) == shown
