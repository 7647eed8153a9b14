"""Pods for tests: what they need of this machine."""

import io
import os
import shutil
import tarfile

import pytest

from tests.k8s.pods.containers.abandoned import remove_abandoned
from tests.k8s.pods.containers.podman import Podman, missing

APPLETS = ("cat", "env", "hostname", "httpd", "id", "pidof", "sh", "sleep", "touch", "wget")


@pytest.fixture
def no_task_outlives_its_test() -> None:
    """Nothing: pods of a cluster that the tests of a file share outlive the test that made them."""


@pytest.fixture(scope="session")
async def machine(tmp_path_factory) -> None:
    """Fail where no pods can be run, and say what is missing; remove what a killed run left."""
    if absent := missing():
        pytest.fail(f"make k8s-test installs what is missing: {absent}", pytrace=False)
    await remove_abandoned(tmp_path_factory.mktemp("abandoned"))


@pytest.fixture(scope="session")
async def small_image(machine, tmp_path_factory):
    """An image of a megabyte: busybox, as a web server and a shell; removed at the end."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "apt-get install busybox-static"
    directory = tmp_path_factory.mktemp("small-image")
    archive = directory / "root.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        tar.add(busybox, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        passwd = b"root:x:0:0::/:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(passwd)
        tar.addfile(entry, io.BytesIO(passwd))
    podman = Podman("image", directory)
    image = f"localhost/{directory.name}:1"
    await podman("import", str(archive), image)
    yield image
    await podman("rmi", "--force", image)


@pytest.fixture(scope="session")
def baton_images() -> dict[str, str]:
    """What is run in the place of the images of overlays, as NAME=IMAGE in `BATON_TEST_IMAGES`.

    Nothing, where that is not set: `make image` gives its images the names of the laptop overlay.
    """
    given = os.environ.get("BATON_TEST_IMAGES", "").split()
    return dict(one.split("=", 1) for one in given)
