"""The volumes of a pod: directories of this machine, shared by its containers."""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.k8s.manifests.quantity import whole
from tests.k8s.pods.containers.arguments import Mount
from tests.k8s.pods.containers.memory import mount_memory, unmount
from tests.k8s.pods.objects.environment import ConfigError, Data, PodFacts

DEFAULT_MODE = 0o644
DIRECTORY_MODE = 0o2777
"""Of an emptyDir: everyone writes, and its files are of the pod's group."""
CURRENT = "..data"
"""In a volume of texts, the link to the directory with those of now."""


class Volumes:
    """The volumes of one pod.

    Args:
        spec: of the pod.
        directory: of the pod; does not exist yet.
        claims: where the contents of PersistentVolumeClaims are, which outlive pods.
        node: returns the root directory of the pod's node, which outlives pods too.
        data: ConfigMaps and Secrets, as they are when the pod starts.
        facts: for what the downward API says.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        directory: Path,
        claims: Path,
        node: Callable[[], Path],
        data: Data,
        facts: PodFacts,
    ) -> None:
        self._spec = spec
        self._directory = directory
        self._claims = claims
        self._node = node
        self._data = data
        self._facts = facts
        self._group: int = spec.get("securityContext", {}).get("fsGroup", -1)
        self._mounted: list[Path] = []
        self._paths: dict[str, Path] = {}
        self._read_only: set[str] = set()

    def make(self) -> None:
        """Make and fill them.

        Raises:
            ConfigError: what a volume is made of is not there.
        """
        self._directory.mkdir(parents=True)
        facts = self._facts
        hosts = f"127.0.0.1\tlocalhost\n::1\tlocalhost\n{facts.ip}\t{facts.name}\n"
        (self._directory / "etc-hosts").write_text(hosts)
        for volume in self._spec.get("volumes", ()):
            self._paths[volume["name"]] = self._make(volume)

    def refresh(self, data: Data) -> None:
        """Bring texts of ConfigMaps and Secrets up to date; what is gone leaves them as they are.

        Mounts of a `subPath` keep what they were made of, as in Kubernetes.
        """
        self._data = data
        for volume in self._spec.get("volumes", ()):
            path = self._paths.get(volume["name"])
            if path is not None and volume.keys() & {"configMap", "secret"}:
                with suppress(ConfigError):
                    self._fill(path, volume)

    def mounts(self, container: Mapping[str, Any]) -> list[Mount]:
        """Return what a container mounts.

        Raises:
            ConfigError: the pod has no such volume.
        """
        found = [Mount(self._directory / "etc-hosts", "/etc/hosts")]
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in self._paths:
                raise ConfigError(f"{container['name']} mounts {mount['name']}: there is no volume")
            source = (self._paths[mount["name"]] / mount.get("subPath", "")).resolve()
            if not source.exists():
                raise ConfigError(f"{container['name']}: {mount['name']} has no {mount['subPath']}")
            read_only = mount.get("readOnly", False) or mount["name"] in self._read_only
            found.append(Mount(source, mount["mountPath"], read_only))
        return found

    def remove(self) -> None:
        """Unmount and delete all but claims; a volume may be removed twice."""
        while self._mounted:
            unmount(self._mounted.pop())
        self._paths.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _make(self, volume: Mapping[str, Any]) -> Path:
        if "hostPath" in volume:
            return self._of_node(volume["hostPath"])
        path = self._directory / "volumes" / volume["name"]
        if "persistentVolumeClaim" in volume:
            path = self._claims / volume["persistentVolumeClaim"]["claimName"]
        path.mkdir(parents=True, exist_ok=True)
        if (empty := volume.get("emptyDir")) is not None and empty.get("medium") == "Memory":
            options = f"mode={DIRECTORY_MODE:o},gid={max(0, self._group)}"
            if "sizeLimit" in empty:
                options += f",size={whole(empty['sizeLimit'])}"
            mount_memory(path, options)
            self._mounted.append(path)
        elif "emptyDir" in volume or "persistentVolumeClaim" in volume:
            os.chown(path, -1, self._group)
            path.chmod(DIRECTORY_MODE)
        else:
            self._fill(path, volume)
            self._read_only.add(volume["name"])
        return path

    def _fill(self, path: Path, volume: Mapping[str, Any]) -> None:
        _write(path, _files(volume, self._data, self._facts), _mode(volume), self._group)

    def _of_node(self, source: Mapping[str, Any]) -> Path:
        path = self._node() / str(source["path"]).lstrip("/")
        if source.get("type") == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            raise ConfigError(f"hostPath: the node has no directory {source['path']}")
        return path


def _files(volume: Mapping[str, Any], data: Data, facts: PodFacts) -> dict[str, str]:
    """Return the contents of a volume that holds texts, by path."""
    if "downwardAPI" in volume:
        items = volume["downwardAPI"]["items"]
        return {item["path"]: facts.field(item["fieldRef"]["fieldPath"]) for item in items}
    kind, key = ("ConfigMap", "configMap") if "configMap" in volume else ("Secret", "secret")
    if key not in volume:
        raise ConfigError(f"volume {volume['name']}: its kind is unknown")
    source = volume[key]
    texts = data.read(kind, source)
    if "items" not in source:
        return dict(texts)
    absent = [item["key"] for item in source["items"] if item["key"] not in texts]
    if absent and not source.get("optional"):
        raise ConfigError(f"volume {volume['name']}: {kind} has no key {', '.join(absent)}")
    return {item["path"]: texts[item["key"]] for item in source["items"] if item["key"] in texts}


def _mode(volume: Mapping[str, Any]) -> int:
    source = next(value for key, value in volume.items() if key != "name")
    return int(source.get("defaultMode", DEFAULT_MODE))


def _write(volume: Path, texts: Mapping[str, str], mode: int, group: int) -> None:
    """Replace what a volume holds, all files in one moment: its names are links through another.

    Nothing is written where it holds just that.
    """
    current = volume / CURRENT
    before = current.resolve() if current.is_symlink() else None
    if before is not None and _read(before) == texts:
        return
    made = volume / f"..{secrets.token_hex(4)}"
    made.mkdir()
    for name, text in texts.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.chown(path, -1, group)
        # Kubernetes lets the group of a pod read what its owner reads.
        path.chmod(mode if group < 0 else mode | (mode & 0o400) >> 3)
    new = volume / f"{CURRENT}_tmp"
    new.symlink_to(made.name)
    new.replace(current)
    names = {Path(name).parts[0] for name in texts}
    for name in names:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(Path(CURRENT) / name)
    if before is not None:
        for link in volume.iterdir():
            if link.name not in names and not link.name.startswith(".."):
                link.unlink()
        shutil.rmtree(before)


def _read(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in files}
