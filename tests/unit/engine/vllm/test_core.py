"""What Baton uses of vLLM and vLLM does not promise: each test fails where a name has moved."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.kv.cuts import CutRules
from baton.kv.layout import GroupKind, KvGroup
from baton.planning.model import read_model
from baton.settings import EngineSettings

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]

BLOCK = 32
KV_BYTES = 2**20
_names = count()


class Admissions:
    """What the connector asks, answered alike for all: hold what has not been let go."""

    def __init__(self) -> None:
        self.let_go: set[str] = set()
        self.allocated_for: list[tuple[str, bool]] = []
        self.tokens: dict[str, int] = {}

    def match(self, name: str, local_tokens: int) -> tuple[int | None, bool]:
        return (0, False) if name in self.let_go else (self.tokens[name] - local_tokens, True)

    def allocated(self, name: str, *, loading: bool) -> None:
        self.allocated_for.append((name, loading))

    def scheduled(self, tokens: Any, preempted: Any) -> None:
        """Take note of nothing."""


class Held:
    """One request in a core."""

    def __init__(self, core: Any, admissions: Admissions, tokens: list[int], limit: int) -> None:
        from vllm.sampling_params import SamplingParams

        def name_blocks(request: Any) -> list[bytes]:
            known, full = len(request.block_hashes), request.num_tokens // BLOCK
            chain = [
                bytes(repr(request._all_token_ids[: i * BLOCK]), "ascii")
                for i in range(1, full + 1)
            ]
            return chain[known:]

        self.core = core
        self.name = f"test-{next(_names)}"
        self.admissions = admissions
        admissions.tokens[self.name] = len(tokens)
        params = SamplingParams(temperature=0, max_tokens=limit, ignore_eos=True, detokenize=False)
        self.request = core.make_request(self.name, tokens, params, name_blocks, 0, 0, None)
        core.add(self.request)

    def resume(self, ready: int, more: tuple[int, ...] = ()) -> list[int]:
        """Let it go, and return the tokens that it gets."""
        self.admissions.let_go.add(self.name)
        self.core.resume(self.request, ready, more)
        sampled: list[int] = []
        while not self.request.is_finished():
            for output in self.core.step():
                assert output.request_id == self.name
                sampled.extend(output.new_token_ids)
        return sampled


@pytest.fixture(scope="module")
def admissions() -> Admissions:
    return Admissions()


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, admissions: Admissions) -> Iterator[Any]:
    """A core without Baton's engine around it."""
    from baton.engine.vllm.environment import prepare

    settings = EngineSettings(
        kind="vllm",
        model=write_random_checkpoint(tmp_path_factory.mktemp("core"), head_size=32),
        dtype="float32",
        kv_bytes=KV_BYTES,
        threads=1,
    )
    prepare(settings)
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    from baton.engine.vllm.config import make_config
    from baton.engine.vllm.core import VllmCore
    from baton.engine.vllm.registry import ADMISSIONS, REGISTERED

    ADMISSIONS["test-core"] = admissions
    made = VllmCore(make_config(settings, "test-core", (), ""), UniProcExecutor)
    made.use_groups((0,), CutRules((KvGroup(GroupKind.FULL, 1),), BLOCK))
    yield made
    made.close()
    del ADMISSIONS["test-core"], REGISTERED["test-core"]


def prompt(seed: int, length: int = 70) -> list[int]:
    return [(31 * i + 57 * seed + i * i) % 500 for i in range(length)]


def test_a_request_is_held_with_pages_until_it_is_let_go(core: Any, admissions: Admissions) -> None:
    assert [type(spec).__name__ for spec in core.kv_cache_specs] == ["FullAttentionSpec"]
    assert not core.waits
    held = Held(core, admissions, prompt(1), 4)
    assert core.waits
    assert core.step() == []
    assert core.is_held(held.request)
    assert admissions.allocated_for[-1] == (held.name, True)
    (pages,) = core.tables(held.name)
    assert len(pages) == 3
    assert core.free_pages == core.total_pages - 3
    assert not core.has_work()
    assert all(core.holds_page(held.request, 0, i, page) for i, page in enumerate(pages))
    assert not core.holds_page(held.request, 0, 0, pages[1])
    assert not core.holds_page(held.request, 0, 3, 0)
    tokens = held.resume(0)
    assert len(tokens) == 4
    assert not core.is_held(held.request)
    # 70 and three of the output: the fourth has no KV.
    assert core.computed_tokens(held.request) == (73, 0)
    assert core.free_pages == core.total_pages - 3
    core.release(held.request)
    core.step()
    assert core.free_pages == core.total_pages
    assert not core.holds_page(held.request, 0, 0, pages[0])


def test_what_was_sampled_elsewhere_goes_before_what_is_sampled(
    core: Any, admissions: Admissions
) -> None:
    whole = Held(core, admissions, prompt(2), 6)
    core.step()
    tokens = whole.resume(0)
    core.release(whole.request)
    moved = Held(core, admissions, prompt(2), 6)
    core.step()
    assert moved.resume(0, tuple(tokens[:4])) == tokens[4:]
    core.release(moved.request)
    core.step()


def test_what_is_in_place_is_not_computed(core: Any, admissions: Admissions) -> None:
    held = Held(core, admissions, prompt(3), 2)
    core.step()
    # The pages hold nothing that is right: it is about how many tokens are computed.
    held.resume(64)
    assert core.computed_tokens(held.request) == (71, 0)
    assert all(core.holds(key) for key in held.request.block_hashes[:2])
    core.release(held.request)
    core.step()


def test_keys_leave_the_prefix_cache_and_are_told(core: Any, admissions: Admissions) -> None:
    core.evict([page for page, _, _ in core.idle_pages()])
    core.take_removed()
    held = Held(core, admissions, prompt(4), 1)
    core.step()
    held.resume(0)
    keys = [bytes(key) for key in held.request.block_hashes[:2]]
    assert list(core.idle_pages()) == []
    core.release(held.request)
    core.step()
    assert all(first for _, _, first in core.idle_pages())
    idle = {page: key for page, key, _ in core.idle_pages()}
    assert list(idle.values()) == list(reversed(keys))  # the end of a chain goes first
    core.evict(idle)
    assert core.take_removed() == [(0, key) for key in reversed(keys)]
    assert not any(map(core.holds, keys))


def test_a_request_is_stopped_in_every_state(core: Any, admissions: Admissions) -> None:
    never_known = Held(core, admissions, prompt(5), 4)
    core.release(never_known.request)
    held = Held(core, admissions, prompt(6), 4)
    core.step()
    core.release(held.request)
    running = Held(core, admissions, prompt(7), 40)
    core.step()
    admissions.let_go.add(running.name)
    core.resume(running.request, 0, ())
    core.step()
    assert core.has_work()
    core.stop(running.request)
    assert core.free_pages < core.total_pages
    core.release(running.request)
    core.step()
    assert core.free_pages == core.total_pages
    assert not core.has_work()
    assert not core.failed


def test_a_plans_bytes_are_those_of_vllm(core: Any) -> None:
    model = read_model(Path(core._core.vllm_config.model_config.model), "float32")
    block_bytes = BLOCK * model.kv_token_bytes
    report = core._scheduler.kv_cache_config
    assert report.num_blocks == KV_BYTES // block_bytes
    assert sum(tensor.size for tensor in report.kv_cache_tensors) == report.num_blocks * block_bytes
    assert core.total_pages == report.num_blocks - 1, "as a plan says: one is vLLM's own"
