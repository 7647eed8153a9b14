"""What can be registered: an adapter that cannot be used is refused, and nothing is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.engine.base import EngineInfo
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.errors import BatonError
from baton.internal.v1 import cluster_pb2
from baton.models.adapters.register import register
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.admin.aliases import AliasAdministration
from baton.tenancy.records.aliases import AliasTarget
from baton.worker.records import model_card
from tests.support.engine.lora import make_engine


@pytest.fixture(scope="module")
def info(random_model: Callable[..., Path]) -> EngineInfo:
    engine = make_engine(random_model())
    engine.close_engine()
    return engine.info


@pytest.fixture
async def admin(etcd_client: Etcd, cluster: str, info: EngineInfo) -> AdapterAdministration:
    """Of a cluster with the model `base`, and one whose workers take no adapters."""
    for card in (model_card(info, "base"), cluster_pb2.ModelCard(name="plain", engine="sim")):
        await etcd_client.put(keys.model(cluster, card.name, "v"), keys.encode(card))
    return AdapterAdministration(etcd_client, cluster)


async def refused(
    admin: AdapterAdministration, words: str, field: str, *names: str, **options: Any
) -> None:
    before = await admin.adapters()
    with pytest.raises(BatonError, match=words) as caught:
        await register(admin, *names, **options)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    assert await admin.adapters() == before


@pytest.mark.parametrize(
    ("name", "base", "location", "field", "words"),
    [
        ("a\nb", "base", "", "adapter", r"'a\\\\nb' is not the name"),
        ("", "base", "", "adapter", "is not the name"),
        ("base", "base", "", "adapter", "cannot be an adapter of itself|is a model"),
        ("sql", "plain", "", "base", "plain has sim workers, which load no adapters"),
        ("sql", "none", "", "base", "'none' is no model.*which has: base, plain"),
        ("sql", "n\x1b[2J", "", "base", r"'n\\\\x1b\[2J' is no model"),
        ("sql", "base", "/a/../b", "location", r"without `\.\.`"),
        ("sql", "base", "relative", "location", "absolute"),
        ("sql", "base", "/a\0b", "location", "printable"),
        ("sql", "base", "/" + "a" * 1024, "location", "1,024"),
        ("sql", "base", "gs://bucket/a", "location", "of no scheme that is known: s3://, https"),
        ("sql", "base", "https://key@host/a", "location", "without password"),
        ("sql", "base", "https://host/a?key=1", "location", "without password, query"),
        ("sql", "base", "s3://bucket/a/../b", "location", r"and `\.\.`"),
        ("sql", "base", "s3:///a", "location", "not a URL of a host"),
        ("sql", "base", "/nowhere", "location", "adapter_config.json cannot be read"),
    ],
)
async def test_names_and_places(
    admin: AdapterAdministration,
    random_model: Callable[..., Path],
    tmp_path: Path,
    name: str,
    base: str,
    location: str,
    field: str,
    words: str,
) -> None:
    made = write_random_adapter(tmp_path / "a", random_model())
    await refused(admin, words, field, name, base, location or str(made))


async def test_adapters_that_do_not_fit(
    admin: AdapterAdministration, random_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = random_model()
    wide = write_random_adapter(tmp_path / "wide", model, rank=17)
    await refused(
        admin, "rank is 17, and engine.max_adapter_rank is 16", "location", "sql", "base", str(wide)
    )
    other = write_random_checkpoint(tmp_path / "other", hidden=32)
    narrow = write_random_adapter(tmp_path / "narrow", other)
    await refused(admin, "another model", "location", "sql", "base", str(narrow))
    deep = write_random_checkpoint(tmp_path / "deep", layers=3)
    deeper = write_random_adapter(tmp_path / "deeper", deep)
    await refused(admin, "layers.2.self_attn.q_proj", "location", "sql", "base", str(deeper))
    long = write_random_adapter(tmp_path / "long", model)
    with (long / "adapter_model.safetensors").open("ab") as file:
        file.truncate(1 << 40)  # takes no disk space
    await refused(admin, "1099511627776 bytes", "location", "sql", "base", str(long))
    pickle = write_random_adapter(tmp_path / "pickle", model)
    (pickle / "adapter_model.safetensors").rename(pickle / "adapter_model.bin")
    await refused(admin, "is pickle", "location", "sql", "base", str(pickle))


async def test_a_name_is_used_once(
    admin: AdapterAdministration,
    etcd_client: Etcd,
    cluster: str,
    random_model: Callable[..., Path],
    tmp_path: Path,
) -> None:
    made = str(write_random_adapter(tmp_path / "a", random_model()))
    first = await register(admin, "sql", "base", made)
    assert (first.rank, first.location, first.base) == (8, made, "base")
    await refused(admin, "sql is registered", "adapter", "sql", "base", made)
    aliases = AliasAdministration(etcd_client, cluster)
    await aliases.point("best", (AliasTarget("sql"),))
    await refused(admin, "best is a model, adapter or alias", "adapter", "best", "base", made)
    with pytest.raises(BatonError, match="sql is a model or adapter"):
        await aliases.point("sql", (AliasTarget("base"),))
    again = await register(admin, "sql", "base", made, replace=True)
    assert (again.digest, again.version) == (first.digest, 2)
    await admin.remove("sql")
    assert await admin.adapters() == []
    await register(admin, "sql", "base", made)
