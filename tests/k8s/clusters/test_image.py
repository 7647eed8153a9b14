"""The images as they were built: their layers, and that each consists of what its SBOM lists."""

import json
from pathlib import Path

import pytest

from bench.harness import ROOT
from tests.k8s.pods.containers.podman import Podman

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]
BATON, EXTRAS = "localhost/baton:0.1.0", "localhost/baton-extras:0.1.0"
CLIENTS = {"asyncpg", "alembic", "sqlalchemy", "confluent_kafka"}
DISTRIBUTIONS = """
import importlib.metadata as metadata, json, re
found = ((one.name, one.version) for one in metadata.distributions())
print(json.dumps([(re.sub("[-_.]+", "-", name).lower(), version) for name, version in found]))
"""
FINDABLE = """
import importlib.util, json
print(json.dumps([name for name in {names} if importlib.util.find_spec(name)]))
"""
WITHOUT_BYTECODE = """
import json, os, sys
from baton.host.bundled import root
sys.path.insert(0, str(root()))
import services.{process}.__main__
files = ((one, getattr(one, "__file__", None) or "") for one in list(sys.modules.values()))
loaded = [one for one, file in files if file.startswith("/opt/") and file.endswith(".py")]
missing = [one.__name__ for one in loaded if not os.path.exists(one.__cached__)]
print(json.dumps([len(loaded), missing]))
"""


@pytest.fixture(scope="module")
def podman(machine, tmp_path_factory):
    return Podman("images", tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="module")
def python(podman):
    """Runs a program with an image's Python, and returns the JSON that it prints."""

    async def python(image, program):
        entry = ("--network", "none", "--entrypoint", "python")
        output = await podman("run", "--rm", "--read-only", *entry, image, "-c", program)
        return json.loads(output)

    return python


async def _of(podman, image):
    (found,) = json.loads(await podman("image", "inspect", image))
    return found


def _sbom(found):
    """Return the SBOM of an image: that of the tag with its commit."""
    revision = found["Labels"]["org.opencontainers.image.revision"]
    (tag,) = {name for name in found["RepoTags"] if name.endswith(revision)}
    name = tag.removeprefix("localhost/").replace(":", "-")
    return json.loads((Path(ROOT) / "build/sbom" / f"{name}.cdx.json").read_text())


async def test_images_differ_in_one_layer_and_code_is_the_last(podman):
    plain, more = [(await _of(podman, each))["RootFS"]["Layers"] for each in (BATON, EXTRAS)]
    assert plain[-1] == more[-1], "the layer of code"
    assert plain[:-1] == more[:-2]


@pytest.mark.parametrize("image", [BATON, EXTRAS])
async def test_an_image_consists_of_what_its_sbom_lists(podman, python, image):
    components = _sbom(await _of(podman, image))["components"]
    listed = {(one["name"], one["version"]) for one in components if "pypi" in one["purl"]}
    assert {tuple(one) for one in await python(image, DISTRIBUTIONS)} == listed
    status = await podman(
        "run", "--rm", "--entrypoint", "dpkg-query", image, "-W", "-f", "${Package} ${Version}\\n"
    )
    debian = {f"{one['name']} {one['version']}" for one in components if "deb" in one["purl"]}
    assert set(status.splitlines()) == debian


async def test_clients_of_databases_are_in_the_image_with_extras(python):
    program = FINDABLE.format(names=sorted(CLIENTS))
    assert set(await python(EXTRAS, program)) == CLIENTS
    assert not await python(BATON, program)


@pytest.mark.parametrize("process", ["frontend", "router", "decode", "kvstore"])
async def test_what_a_process_imports_has_bytecode(python, process):
    """Processes cannot write it: what lacks it is compiled at each start."""
    loaded, missing = await python(BATON, WITHOUT_BYTECODE.format(process=process))
    assert len(missing) <= loaded // 50, missing
