"""Engines of every kind. Tests take `engine`, or `tight_engine` where they reach a limit.

One engine is open at a time, as an engine of vLLM takes seconds to make and a process has but one:
tests are ordered by kind and size, and an engine is handed on as each test began with it. It is
closed before a test of another folder, which may want one of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from baton.engine.base import Engine
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from tests.support.engine.contract import KINDS, EngineKind, clear


@dataclass(frozen=True)
class Case:
    """Which engine a test runs on."""

    kind: EngineKind
    tight: bool


class EngineOwner:
    """Makes engines, one at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._case: Case | None = None
        self._engine: Engine | None = None

    def get(self, case: Case) -> Engine:
        """Return the engine of a case: the open one, if it is this."""
        if self._engine is None or self._case != case:
            self.close()
            self._engine = case.kind.make(self._checkpoint(case.kind), tight=case.tight)
            self._case = case
            _check_new(self._engine)
        return self._engine

    def close(self) -> None:
        """Close the open engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close_engine()

    def _checkpoint(self, kind: EngineKind) -> Path:
        # vLLM's CPU backend takes heads of 32 values and more.
        head_size = 32 if kind.is_vllm else 16
        path = self._directory / f"heads-of-{head_size}-window-{kind.window}"
        family = "qwen3" if kind.window else "llama"
        if not path.exists():
            write_random_checkpoint(path, family, seed=1, head_size=head_size, window=kind.window)
        return path


_OWNER = pytest.StashKey[EngineOwner]()


def _check_new(engine: Engine) -> None:
    stats = engine.stats()
    assert stats.prefill_tokens_per_second == stats.decode_step_seconds == 0
    engine.warm_up()
    assert engine.stats().computed_tokens == engine.stats().cached_tokens == 0
    clear(engine)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    tight = "tight_engine" in metafunc.fixturenames
    cases = []
    for kind in KINDS:
        if kind.has_groups and getattr(metafunc.module, "ANY_PREFIX", False):
            continue
        marks = [pytest.mark.xdist_group(kind.name)]
        if kind.is_vllm:
            # What vLLM's libraries warn of is not for this project to mend.
            marks += [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
        case = Case(kind, tight or kind.only_tight)
        cases.append(pytest.param(case, id=kind.name, marks=marks))
    metafunc.parametrize("case", cases, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    places = [at for at, item in enumerate(items) if here in item.path.parents]
    ordered = sorted((items[at] for at in places), key=_order)
    for at, item in zip(places, ordered, strict=True):
        items[at] = item


def _order(item: pytest.Item) -> tuple[int, bool]:
    case = item.callspec.params["case"]
    return KINDS.index(case.kind), case.tight


@pytest.fixture(scope="session")
def owner(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[EngineOwner]:
    owner = pytestconfig.stash[_OWNER] = EngineOwner(tmp_path_factory.mktemp("contract"))
    yield owner
    owner.close()


@pytest.hookimpl(trylast=True)  # after the test's own fixtures
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and Path(__file__).parent not in nextitem.path.parents:
        owner = item.config.stash.get(_OWNER, None)
        if owner is not None:
            owner.close()


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def any_engine(owner: EngineOwner, case: Case) -> Iterator[Engine]:
    engine = owner.get(case)
    yield engine
    try:
        clear(engine)
    except BaseException:
        owner.close()  # the next test gets another
        raise


@pytest.fixture
def engine(any_engine: Engine) -> Engine:
    """With memory for 24 blocks and more, and four sequences at once."""
    return any_engine


@pytest.fixture
def tight_engine(any_engine: Engine) -> Engine:
    """With a few pages, `max_running` 4, `max_waiting` 8, and chunks of two blocks."""
    return any_engine
