"""Adapters at URLs: downloaded once, verified, and rejected before more is read than needed."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baton.client import UnavailableError
from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.lora.adapter import read_adapter
from baton.engine.lora.config import CONFIG, AdapterError
from baton.engine.lora.limits import AdapterLimits, layer_shapes, limits_of
from baton.engine.lora.weights import WEIGHTS
from baton.engine.testing.random_adapter import write_random_adapter
from baton.errors import BatonError
from baton.models.adapters.cache import DOWNLOADS, AdapterCache
from baton.models.adapters.register import register
from tests.integration.adapters.conftest import AdapterCluster
from tests.integration.models.conftest import aws  # noqa: F401
from tests.support.engine.lora import LAYERS
from tests.support.models.server import BUCKET, PREFIX, ModelServer, sums

MIB = 1024 * 1024
EXAMPLE = "README.md"
QUICK = replace(DOWNLOADS, backoff_seconds=0.0, max_backoff_seconds=0.0)


def files_of(directory: Path) -> dict[str, bytes]:
    found = {name: (directory / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    return {**found, EXAMPLE: b"of no use here"}


def serve(server: ModelServer, files: Mapping[str, bytes]) -> None:
    """Have a server serve these files from now on."""
    server.files = dict(files)
    server.extra = {"SHA256SUMS": sums(files)}


@pytest.fixture
def made(tmp_path: Path, random_model: Any) -> Path:
    return write_random_adapter(tmp_path / "made", random_model(), modules=LAYERS)


@pytest.fixture
def limits(random_model: Any) -> AdapterLimits:
    shapes = layer_shapes(tensor_shapes(weight_files(random_model())))
    adapted = {name: one for name, one in shapes.items() if name.rpartition(".")[2] in LAYERS}
    return limits_of(adapted, 16, 20)


@pytest.fixture
def server(made: Path) -> Iterator[ModelServer]:
    with ModelServer({}) as server:
        serve(server, files_of(made))
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> AdapterCache:
    return AdapterCache(tmp_path / "cache", pulls=QUICK)


@pytest.mark.parametrize("kind", ["web", "bucket"])
def test_an_adapter_is_downloaded_once(
    kind: str,
    server: ModelServer,
    cache: AdapterCache,
    made: Path,
    limits: AdapterLimits,
    aws: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    location = {"web": f"{server.url}/web/", "bucket": f"s3://{BUCKET}/{PREFIX}"}[kind]
    server.faults[WEIGHTS] = ["cut"]
    expected = read_adapter("a", made, limits)
    for _ in range(2):
        with cache.fetch(location, limits) as held:
            found = read_adapter("a", held.directory, limits)
            assert found.digest == expected.digest
            assert {path.name for path in held.directory.iterdir()} >= {CONFIG, WEIGHTS}
            assert not (held.directory / EXAMPLE).exists()
    # The second part of what was cut, and nothing for the second call.
    assert len(server.of(WEIGHTS)) == 2


def test_the_cache_is_bounded_and_what_is_in_use_stays(
    server: ModelServer, tmp_path: Path, random_model: Any, limits: AdapterLimits
) -> None:
    size = (tmp_path / "made" / WEIGHTS).stat().st_size
    cache = AdapterCache(tmp_path / "cache", 2 * size + 4096, QUICK)
    places = []
    with cache.fetch(f"{server.url}/web/", limits) as in_use:
        for seed in range(1, 5):
            other = write_random_adapter(
                tmp_path / f"other-{seed}", random_model(), seed, modules=LAYERS
            )
            serve(server, {f"{seed}/{name}": data for name, data in files_of(other).items()})
            server.extra = {f"{seed}/SHA256SUMS": sums(files_of(other))}
            with cache.fetch(f"{server.url}/web/{seed}", limits) as held:
                places.append(held.directory)
        there = [place for place in places if place.exists()]
        assert in_use.directory.exists()
        assert places[-1] in there
        assert 1 <= len(there) < len(places)
        kept = sum(path.stat().st_size for path in (tmp_path / "cache").rglob(WEIGHTS))
        assert kept <= 3 * size
        assert cache.hold(places[0]) is None
    held = cache.hold(places[-1])
    assert held is not None
    held.close()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cut", "ended the connection too early"),
        ("other-bytes", "does not have the digest that the source gives"),
        ("longer", "is longer than"),
        ("gone", r"does not have .*HTTP 404"),
    ],
)
def test_a_download_that_fails_is_named(
    fault: Any, words: str, server: ModelServer, cache: AdapterCache, limits: AdapterLimits
) -> None:
    server.always[WEIGHTS] = fault
    with pytest.raises(AdapterError, match=words):
        cache.fetch(f"{server.url}/web/", limits)
    server.always.clear()
    cache.fetch(f"{server.url}/web/", limits).close()


def test_what_is_too_long_or_no_adapter_is_not_read(
    server: ModelServer, cache: AdapterCache, made: Path, limits: AdapterLimits
) -> None:
    files = files_of(made)
    for path, data, words in (
        (WEIGHTS, bytes(limits.max_bytes + 1), rf"{WEIGHTS} of {limits.max_bytes + 1} bytes"),
        (CONFIG, bytes(5 * MIB), rf"{CONFIG} of {5 * MIB} bytes"),
    ):
        serve(server, {**files, path: data})
        with pytest.raises(AdapterError, match=words):
            cache.fetch(f"{server.url}/web/", limits)
        assert server.of(path) == []
    serve(server, {CONFIG: files[CONFIG], "adapter_model.bin": b"pickle"})
    with pytest.raises(AdapterError, match=f"has no {WEIGHTS}"):
        cache.fetch(f"{server.url}/web/", limits)
    assert server.of("adapter_model.bin") == []


async def test_workers_download_what_is_registered_and_serve_nothing_else(
    adapted: AdapterCluster, tmp_path: Path
) -> None:
    path = adapted.write("sql")
    with ModelServer({}) as server:
        serve(server, files_of(path))
        location = f"{server.url}/web/"
        for name in ("sql", "later"):
            record = await register(adapted.admin, name, "base", location)
            await adapted.served(name, record.digest)
        assert await adapted.ask(1, model="sql") == adapted.expected(1, 8, path)
        cache = tmp_path / "adapter-cache"
        shutil.rmtree(cache)
        assert await adapted.ask(2, model="later") == adapted.expected(2, 8, path)
        await adapted.admin.remove("later")
        record = await register(adapted.admin, "again", "base", location)
        await adapted.served("again", record.digest)
        shutil.rmtree(cache)
        serve(server, files_of(adapted.write("other", 1)))
        with pytest.raises(UnavailableError, match="not those that were registered"):
            await adapted.ask(3, model="again", timeout=5)
        server.always[WEIGHTS] = "gone"
        with pytest.raises(BatonError, match="HTTP 404") as caught:
            await register(adapted.admin, "none", "base", location)
        assert caught.value.field == "location"
        assert {one.id for one in await adapted.admin.adapters()} == {"sql", "again"}
