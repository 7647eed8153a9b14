"""Which keys are used, and where they are read."""

from pathlib import Path

import pytest

from baton.providers.key_file import KeyUnreadableError, ProviderKey

SECRET = "sk-0123456789"


def test_a_key_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    key = ProviderKey(f"file:{path}")
    assert (key.value(), ProviderKey("").value()) == (SECRET, "")
    path.write_text(f"{SECRET}-next\n")
    assert key.value() == f"{SECRET}-next"
    path.chmod(0o644)
    with pytest.raises(KeyUnreadableError, match="all users can read") as caught:
        key.value()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "~!~", "two words here", "a\nb-long-enough-key", "x" * 5000])
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyUnreadableError) as caught:
        ProviderKey(f"file:{path}").value()
    assert not text or text not in str(caught.value)


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", SECRET)
    assert ProviderKey("env:ACME_API_KEY").value() == SECRET
    monkeypatch.delenv("ACME_API_KEY")
    with pytest.raises(KeyUnreadableError, match="is empty or not set"):
        ProviderKey("env:ACME_API_KEY").value()
