"""Which cluster each command reaches, where two run on one machine: every command, however it is
told.

The two clusters have an etcd each, with records of their own and processes that are registered at
addresses where nothing listens: what a command says of them tells which of the two it reached.
"""

import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from safetensors.numpy import save_file

from baton.backup.sealing import KeyDerivation
from baton.backup.snapshot import back_up
from baton.cli.app import app
from baton.cli.cluster.local.files.local_clusters import LocalCluster
from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.internal.v1 import cluster_pb2
from baton.models.adapters.register import register
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.admin.aliases import AliasAdministration
from baton.tenancy.admin.auto import AutoAdministration
from baton.tenancy.admin.classes import ClassAdministration
from baton.tenancy.admin.policies import PolicyAdministration
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.aliases import AliasTarget
from baton.tenancy.records.auto import AutoRules
from baton.tenancy.records.policies import ModelPolicy
from baton.tenancy.records.providers import Provider, ProviderModel
from baton.tenancy.records.tenants import Scope, Tier
from tests.support.processes.launcher import Launcher

MAIN = """
import json, sys
from baton.backup.sealing import KeyDerivation
from baton.cli.shared.errors import CommandError
from tests.support.command_line import invoke

KeyDerivation.new = lambda: KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)

def run(words):
    done = invoke(words)
    error = done.exception
    if isinstance(error, CommandError):
        return error.code, done.output + str(error)
    return done.exit_code, done.output + ("" if done.exit_code in (0, 2) else repr(error))

print(json.dumps([run(words) for words in json.loads(sys.argv[1])]))
"""

NO_CLUSTER = (
    *("up", "demo", "serve", "simulate", "certs", "version", "config show", "plan"),
    *("models pull", "models verify", "models overlay"),
)
"""Commands that are for no cluster that runs, or start one."""
FRONTEND = {"chat": ("hello",), "models": (), "models ls": ()}
DATABASE = {
    "db status": (),
    "db upgrade": (),
    "db prune": ("--before", "2026-01-01"),
    "db forget": ("nobody",),
    "webhooks ls": (),
    "webhooks deliveries": (),
    "webhooks rm": ("we_" + "0" * 32,),
    "conversations ls": (),
    "conversations show": ("conv_" + "0" * 32,),
    "conversations rm": ("conv_" + "0" * 32,),
    "batches ls": (),
    "batches show": ("batch_" + "0" * 32,),
    "batches cancel": ("batch_" + "0" * 32,),
}
USAGE = {"usage": ()}
READS = {
    "status": (),
    "backup": ("OUT", "--passphrase-file", "PASSPHRASE"),
    "restore": ("BACKUP", "--passphrase-file", "PASSPHRASE"),
    "tenants ls": (),
    "tenants show": ("TENANT",),
    "projects ls": (),
    "keys ls": (),
    "aliases ls": (),
    "auto ls": (),
    "providers ls": (),
    "providers check": ("gone",),
    "adapters ls": (),
    "policies ls": (),
    "classes ls": (),
    "audit ls": (),
    "models add": ("CHECKPOINT",),
    "models set": ("m", "decode=1"),
    "models remove": ("m",),
    "route explain": ("--prompt-tokens", "10", "--model", "m"),
    "kv stat": (),
    "kv ls": (),
    "kv get": ("00",),
    "kv drop": ("00" * 16,),
    "kv verify": (),
}
CHANGES = {
    "tenants create": ("NEW",),
    "tenants set": ("TENANT", "--weight", "2"),
    "tenants disable": ("TENANT",),
    "tenants enable": ("TENANT",),
    "projects create": ("TENANT", "NEW"),
    "projects set": ("TENANT", "default", "--requests-per-minute", "9"),
    "projects archive": ("TENANT", "old"),
    "keys create": ("TENANT",),
    "keys set": ("KEY", "--requests-per-minute", "9"),
    "keys rotate": ("KEY",),
    "keys revoke": ("KEY",),
    "aliases set": ("NEW", "m", "--allow-missing"),
    "aliases rm": ("gone",),
    "auto set": ("RULES", "--allow-missing"),
    "auto rm": (),
    "providers set": (
        *("NEW", "--url", "https://api.example.org/v1"),
        *("--model", "MODEL"),
    ),
    "providers rm": ("gone",),
    "adapters add": ("NEW", "ADAPTER", "--base", "m"),
    "adapters remove": ("gone-adapter",),
    "policies set": ("m", "--tenant", "TENANT"),
    "policies rm": ("gone",),
    "classes set": ("batch", "--weight", "2"),
}
BY_ETCD = {**READS, **CHANGES}
EVERY = {**FRONTEND, **DATABASE, **USAGE, **BY_ETCD}


@dataclass(frozen=True)
class Cluster:
    """One of the two clusters."""

    name: str
    etcd: str
    grpc: str
    processes: str
    """Address at which its router and its store are registered."""
    database: str
    tenant: str
    key: str
    """Id of an API key of the tenant."""
    directory: Path
    """Has a backup, a passphrase, and rules of `auto`."""

    @property
    def record(self) -> LocalCluster:
        """As `baton up` publishes it."""
        return LocalCluster(
            (self.etcd,), self.name, self.grpc, "127.0.0.1:1", f"postgresql://u@{self.database}/d"
        )

    @property
    def deadline(self) -> str:
        """What `classes ls` says of its class premium."""
        return f"deadline {self.database.rpartition(':')[2]}"

    def words(self, command: str, arguments: Sequence[str]) -> list[str]:
        known = {
            "TENANT": self.tenant,
            "KEY": self.key,
            "NEW": f"new-{secrets.token_hex(4)}",
            "CHECKPOINT": "/absent:name=m",
            "MODEL": f"model-{secrets.token_hex(4)},context=9,output=2",
            "RULES": str(self.directory / "rules.toml"),
            "ADAPTER": str(self.directory / "adapter"),
            "OUT": str(self.directory / "written"),
            "BACKUP": str(self.directory / "backup"),
            "PASSPHRASE": str(self.directory / "passphrase"),
        }
        return [*command.split(), *(known.get(word, word) for word in arguments)]

    def is_told_by(self, text: str) -> bool:
        """Whether what a command said is of this cluster."""
        told = (self.grpc, self.processes, self.database, self.tenant, self.deadline)
        return any(one in text for one in (*told, f"cluster {self.name}", f"cluster {self.name!r}"))


@pytest.fixture(scope="module")
async def etcds(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    async with (
        LocalEtcd(tmp_path_factory.mktemp("etcd"), durable=False) as first,
        LocalEtcd(tmp_path_factory.mktemp("etcd"), durable=False) as second,
    ):
        yield first.endpoints[0], second.endpoints[0]


@pytest.fixture
async def clusters(
    etcds: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Cluster, Cluster]]:
    # What a passphrase costs is not tested here, and each costs .3 s.
    cheap = KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)
    monkeypatch.setattr(KeyDerivation, "new", lambda: cheap)
    with ExitStack() as stack:

        def closed_port() -> str:
            held = stack.enter_context(socket.socket())  # bound and not listening
            held.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{held.getsockname()[1]}"

        made = [
            await _cluster(name, etcd, closed_port(), closed_port(), closed_port(), tmp_path)
            for name, etcd in zip(("alpha", "beta"), etcds, strict=True)
        ]
        yield made[0], made[1]


async def _cluster(
    name: str, etcd: str, grpc: str, processes: str, database: str, tmp_path: Path
) -> Cluster:
    """Return a cluster with processes, a model, and a tenant that no test before changed."""
    tenant = f"of-{name}-{secrets.token_hex(4)}"
    async with Etcd((etcd,)) as client:
        admin = Administration(client, name)
        await admin.create_tenant(tenant, Tier.PRO)
        await admin.create_project(tenant, "old")
        aliases = AliasAdministration(client, name)
        await aliases.point("gone", (AliasTarget(tenant),), missing=True)
        await AutoAdministration(client, name).set(AutoRules(models=(tenant,)), missing=True)
        model = ProviderModel(name=f"{tenant}-model", context_tokens=9, output_tokens=2)
        gone = Provider(id="gone", url="https://api.example.org/v1", models=(model,))
        await ProviderAdministration(client, name).set(gone)
        policy = ModelPolicy(id="gone", tenants=(tenant,))
        await PolicyAdministration(client, name).set(policy, missing=True)
        project = await admin.find_project(tenant, "default")
        seconds = float(database.rpartition(":")[2])
        await ClassAdministration(client, name).update("premium", deadline_seconds=seconds)
        key, _ = await admin.create_key(project, (Scope.INFERENCE,))
        for role in (cluster_pb2.ROLE_ROUTER, cluster_pb2.ROLE_KVSTORE, cluster_pb2.ROLE_DECODE):
            record = cluster_pb2.Instance(
                id=f"{role}-of-{name}", role=role, address=processes, model="m"
            )
            await client.put(keys.instance(name, record.id), keys.encode(record))
        limits = cluster_pb2.AdapterLimits(
            max_rank=2,
            slots=1,
            modules=[cluster_pb2.LinearModules(names="q", outputs=4, inputs=3)],
        )
        card = cluster_pb2.ModelCard(
            name="m", context_tokens=100, block_tokens=16, adapter_limits=limits
        )
        await client.put(keys.model(name, "m", "v"), keys.encode(card))
        directory = tmp_path / f"backups-of-{name}"
        directory.mkdir()
        adapter = directory / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 2}')
        matrices = {
            "q.lora_A.weight": np.ones((2, 3), np.float32),
            "q.lora_B.weight": np.ones((4, 2), np.float32),
        }
        save_file(matrices, adapter / "adapter_model.safetensors")
        adapters = AdapterAdministration(client, name)
        for one in ("gone-adapter", f"{tenant}-adapter"):
            await register(adapters, one, "m", str(adapter), replace=True)
        (directory / "passphrase").write_text("correct horse battery\n")
        (directory / "rules.toml").write_text(f'models = ["{tenant}"]\n')
        await back_up(client, name, directory / "backup", b"correct horse battery")
    return Cluster(name, etcd, grpc, processes, database, tenant, key.id, directory)


class Runner:
    """Runs commands, all of them in one process."""

    def __init__(self, launcher: Launcher, runtime: Path) -> None:
        self._launcher = launcher
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BATON_")},
            "XDG_RUNTIME_DIR": str(runtime),
            "COLUMNS": "300",
        }

    async def __call__(
        self, lines: Sequence[Sequence[str]], variables: Mapping[str, str]
    ) -> list[tuple[int, str]]:
        command = ("-c", MAIN, json.dumps(lines))
        code, out, err = await self._launcher.run(command, {**self._environment, **variables})
        assert code == 0, err
        return [(code, text) for code, text in json.loads(out.splitlines()[-1])]


@pytest.fixture
def run(launcher: Launcher, tmp_path: Path) -> Runner:
    return Runner(launcher, tmp_path)


@pytest.fixture
def two(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Both clusters, found on this machine."""
    with RunDirectory(tmp_path / "baton") as first, RunDirectory(tmp_path / "baton") as second:
        first.publish(clusters[0].record)
        second.publish(clusters[1].record)
        yield clusters


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    if not inner or (path and command.invoke_without_command):
        yield " ".join(path)
    for name, one in inner.items():
        if not one.hidden:
            yield from _commands(one, (*path, name))


def test_every_command_is_in_the_table() -> None:
    assert sorted((*NO_CLUSTER, *EVERY)) == sorted(_commands(typer.main.get_command(app)))


def of(cluster: Cluster, *kinds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return commands with arguments that a cluster knows, by name."""
    return {
        name: cluster.words(name, arguments) for kind in kinds for name, arguments in kind.items()
    }


def options(*, cluster: str = "", etcd: str = "") -> list[str]:
    return [
        *(("--cluster", cluster) if cluster else ()),
        *(("--etcd-endpoint", etcd) if etcd else ()),
    ]


async def reached(
    run: Runner,
    commands: Mapping[str, Sequence[str]],
    more: Sequence[str],
    clusters: tuple[Cluster, Cluster],
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the name of the cluster that each command reached, or what it said."""
    said = await run([[*words, *more] for words in commands.values()], variables or {})
    found = {}
    for name, (_, text) in zip(commands, said, strict=True):
        told = [one.name for one in clusters if one.is_told_by(text)]
        found[name] = told[0] if len(told) == 1 else text
    return found


def all_reach(name: str, commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return dict.fromkeys(commands, name)


async def test_the_only_cluster_that_runs_here_is_meant(
    run: Runner, clusters: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    commands = of(clusters[0], EVERY)
    with RunDirectory(tmp_path / "baton") as directory, RunDirectory(tmp_path / "baton") as demo:
        directory.publish(clusters[0].record)
        demo.publish(
            LocalCluster(("127.0.0.1:1",), "demo-1", "127.0.0.1:1", "127.0.0.1:1", demo=True)
        )
        assert await reached(run, commands, (), clusters) == all_reach("alpha", commands)


async def test_of_two_that_run_here_none_is_guessed(
    run: Runner, two: tuple[Cluster, Cluster]
) -> None:
    commands = of(two[0], EVERY)
    said = await run(list(commands.values()), {})
    for name, (code, text) in zip(commands, said, strict=True):
        assert (
            code,
            "Several clusters run on this machine. Name one with --cluster." in text,
        ) == (2, True), name
        assert f"alpha (OpenAI 127.0.0.1:1, gRPC {two[0].grpc}, etcd {two[0].etcd})" in text
        assert f"beta (OpenAI 127.0.0.1:1, gRPC {two[1].grpc}, etcd {two[1].etcd})" in text


@pytest.mark.parametrize("at", [0, 1])
async def test_a_cluster_that_runs_here_is_found_by_name(
    run: Runner, two: tuple[Cluster, Cluster], at: int
) -> None:
    commands = of(two[at], EVERY)
    name = two[at].name
    assert await reached(run, commands, options(cluster=name), two) == all_reach(name, commands)


@pytest.mark.parametrize("at", [0, 1])
async def test_an_etcd_tells_the_name_of_its_cluster(
    run: Runner, two: tuple[Cluster, Cluster], at: int
) -> None:
    commands = of(two[at], USAGE, BY_ETCD)
    told = await reached(run, commands, options(etcd=two[at].etcd), two)
    assert told == all_reach(two[at].name, commands)


async def test_name_and_etcd_together_are_taken_as_they_are(
    run: Runner, two: tuple[Cluster, Cluster]
) -> None:
    commands = of(two[1], USAGE, BY_ETCD)
    both = options(cluster="beta", etcd=two[1].etcd)
    assert await reached(run, commands, both, two) == all_reach("beta", commands)


@pytest.mark.parametrize("named", ["etcd", "name"])
async def test_the_environment_names_a_cluster_as_options_do(
    run: Runner, two: tuple[Cluster, Cluster], named: str
) -> None:
    commands = of(two[1], USAGE, BY_ETCD)
    variables = {
        "etcd": {"BATON_ETCD_ENDPOINTS": two[1].etcd},
        "name": {"BATON_ETCD_CLUSTER": "beta"},
    }
    assert await reached(run, commands, (), two, variables[named]) == all_reach("beta", commands)


async def test_options_win_over_the_environment(run: Runner, two: tuple[Cluster, Cluster]) -> None:
    commands = of(two[1], USAGE, BY_ETCD)
    other = {"BATON_ETCD_ENDPOINTS": two[0].etcd, "BATON_ETCD_CLUSTER": "alpha"}
    both = options(cluster="beta", etcd=two[1].etcd)
    assert await reached(run, commands, both, two, other) == all_reach("beta", commands)


async def test_a_frontend_and_a_database_are_named_by_their_address(
    run: Runner, two: tuple[Cluster, Cluster]
) -> None:
    frontends, databases = of(two[0], FRONTEND), of(two[0], USAGE, DATABASE)
    at = {"BATON_ADDRESS": two[1].grpc}
    assert await reached(run, frontends, (), two, at) == all_reach("beta", frontends)
    url = {"BATON_STATE_URL": f"postgresql://u@{two[1].database}/d"}
    assert await reached(run, databases, (), two, url) == all_reach("beta", databases)
    said = await run([[*words, "--cluster", "alpha"] for words in frontends.values()], at)
    assert [code for code, _ in said] == [2] * len(frontends)
    assert all("name two frontends: set only one of them" in text for _, text in said)


async def test_a_name_that_is_not_here_is_refused_with_those_that_are(
    run: Runner, two: tuple[Cluster, Cluster]
) -> None:
    commands = of(two[0], EVERY)
    said = await run([[*words, "--cluster", "gamma"] for words in commands.values()], {})
    for name, (code, text) in zip(commands, said, strict=True):
        assert (code, "Cluster 'gamma' does not run on this machine." in text) == (2, True), (
            name,
            text,
        )
        assert "\n  alpha (" in text
        assert "\n  beta (" in text


async def test_a_change_that_would_take_effect_nowhere_is_refused(
    run: Runner, two: tuple[Cluster, Cluster]
) -> None:
    commands = of(two[1], CHANGES)
    wrong = options(cluster="alpha", etcd=two[1].etcd)
    said = await run([[*words, *wrong] for words in commands.values()], {})
    for name, (code, text) in zip(commands, said, strict=True):
        assert (code, "No process of cluster 'alpha' is registered" in text) == (2, True), name
        assert "Clusters registered there: beta. " in text
    early = f"early-{secrets.token_hex(4)}"
    first = ["tenants", "create", early, *wrong, "--before-start"]
    ((code, text),) = await run([first], {})
    assert (code, "(cluster alpha)" in text) == (0, True), text
    async with Etcd((two[1].etcd,)) as client:
        assert early in {one.id for one in await Administration(client, "alpha").tenants()}
    # A cluster that has only records does not make the name of the other one doubtful.
    ((code, text),) = await run([["tenants", "ls", *options(etcd=two[1].etcd)]], {})
    assert (code, two[1].tenant in text) == (0, True), text


async def test_records_of_other_releases_are_read(
    run: Runner, clusters: Any, tmp_path: Path
) -> None:
    with RunDirectory(tmp_path / "baton") as directory:
        directory.publish(clusters[0].record)
        path = directory.path / "cluster.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "field_of_tomorrow": [1]}))
        ((code, text),) = await run([["tenants", "ls"]], {})
        assert (code, clusters[0].tenant in text) == (0, True), text
        path.write_text('{"etcd": "not a list"}')
        ((code, text),) = await run([["tenants", "ls"]], {})
        assert (code, f"{path} cannot be read" in text) == (1, True), text
