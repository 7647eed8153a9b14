"""What podman is told, and what volumes hold."""

import itertools
import stat
from dataclasses import replace

import pytest

from tests.k8s.pods.containers.arguments import Mount, run_arguments
from tests.k8s.pods.containers.memory import abandoned_mounts
from tests.k8s.pods.containers.volumes import Volumes
from tests.k8s.pods.objects.environment import ConfigError, Data, PodFacts

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
FACTS = PodFacts("p-0", "baton", "u", "10.0.0.2", "a", "10.0.0.1", {"app": "p"})
DATA = Data({"settings": {"a.conf": "A", "b.conf": "B"}}, {"keys": {"tls.key": "K"}})


def arguments(container, pod_security=None, image_user="", environment=None, mounts=()):
    return run_arguments(
        {"name": "c", **container},
        pod_security or {},
        image="baton:1",
        image_user=image_user,
        environment=environment or {},
        mounts=mounts,
    )


def values(found, option):
    return [value for name, value in itertools.pairwise(found) if name == option]


def test_a_restricted_container():
    pod = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65533}
    found = arguments({"securityContext": RESTRICTED}, pod)
    assert values(found, "--user") == ["65532:65532"]
    assert values(found, "--group-add") == ["65533"]
    assert values(found, "--cap-drop") == ["ALL"]
    assert values(found, "--security-opt") == ["no-new-privileges"]
    assert {"--read-only", "--read-only-tmpfs=false"} < set(found)


def test_nothing_is_taken_away_that_a_spec_does_not_say():
    found = arguments({})
    assert not {"--read-only", "--cap-drop", "--security-opt", "--user", "--memory"} & set(found)


@pytest.mark.parametrize(
    ("pod", "image_user", "message"),
    [
        ({}, "", "whether the user is root"),
        ({}, "baton", "whether baton is root"),
        ({}, "0:0", "would run as root"),
        ({"runAsUser": 0}, "65532", "would run as root"),
    ],
)
def test_who_must_not_be_root(pod, image_user, message):
    with pytest.raises(ConfigError, match=message):
        arguments({}, {"runAsNonRoot": True, **pod}, image_user)
    assert arguments({}, {"runAsNonRoot": True}, "65532:0")


def test_limits_and_requests():
    limits, requests = {"memory": "64Mi", "cpu": "1500m"}, {"cpu": "250m", "memory": "32Mi"}
    found = arguments({"resources": {"limits": limits, "requests": requests}})
    assert values(found, "--memory") == values(found, "--memory-swap") == [str(64 * 2**20)]
    assert values(found, "--cpus") == ["1.5"]
    assert values(found, "--cpu-shares") == ["256"]


def test_command_and_arguments_refer_to_variables():
    container = {"command": ["baton", "$(ROLE)"], "args": ["--id=$(ID)", "$(NONE)"]}
    found = arguments(container, environment={"ROLE": "serve", "ID": "p-0"})
    assert values(found, "--entrypoint") == ['["baton", "serve"]']
    assert found[-3:] == ["baton:1", "--id=p-0", "$(NONE)"]
    assert values(found, "--env") == ["ROLE=serve", "ID=p-0"]


def test_mounts(tmp_path):
    found = arguments({}, mounts=[Mount(tmp_path, "/kv"), Mount(tmp_path, "/etc/b", True)])
    assert values(found, "--volume") == [f"{tmp_path}:/kv", f"{tmp_path}:/etc/b:ro"]


def make(tmp_path, *volumes):
    spec = {"volumes": list(volumes)}
    node = tmp_path / "node"
    (node / "dev" / "shm").mkdir(parents=True, exist_ok=True)
    made = Volumes(spec, tmp_path / "pod", tmp_path / "claims", lambda: node, DATA, FACTS)
    made.make()
    return made


def mount(volumes, name, **more):
    container = {"name": "c", "volumeMounts": [{"name": name, "mountPath": "/m", **more}]}
    return volumes.mounts(container)[-1]


def texts(directory):
    return {path.name: path.read_text() for path in directory.glob("[!.]*")}


def test_texts_are_files_that_no_container_writes(tmp_path):
    settings = {"name": "s", "configMap": {"name": "settings"}}
    items = [{"key": "tls.key", "path": "tls/key"}]
    keys = {"name": "k", "secret": {"secretName": "keys", "items": items, "defaultMode": 0o400}}
    labels = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    volumes = make(tmp_path, settings, keys, {"name": "d", "downwardAPI": {"items": labels}})
    found = mount(volumes, "s")
    assert found.read_only
    assert texts(found.source) == {"a.conf": "A", "b.conf": "B"}
    key = mount(volumes, "k").source / "tls/key"
    assert key.read_text() == "K"
    assert stat.S_IMODE(key.stat().st_mode) == 0o400
    assert (mount(volumes, "d").source / "labels").read_text() == 'app="p"'
    assert mount(volumes, "s", subPath="a.conf").source.read_text() == "A"
    assert "10.0.0.2\tp-0" in volumes.mounts({"name": "c"})[0].source.read_text()


def test_texts_are_replaced_all_in_one_moment(tmp_path):
    settings = {"name": "s", "configMap": {"name": "settings"}}
    volumes = make(tmp_path, settings)
    found = mount(volumes, "s").source
    before = (found / "..data").readlink()
    volumes.refresh(DATA)
    assert (found / "..data").readlink() == before, "nothing has changed"
    volumes.refresh(replace(DATA, config_maps={"settings": {"a.conf": "new", "c.conf": "C"}}))
    assert texts(found) == {"a.conf": "new", "c.conf": "C"}
    assert not (found / before).exists()
    volumes.refresh(replace(DATA, config_maps={}))
    assert texts(found) == {"a.conf": "new", "c.conf": "C"}


def test_what_a_pod_leaves(tmp_path):
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-p-0"}}
    for content in (None, "kept"):
        volumes = make(tmp_path, {"name": "tmp", "emptyDir": {}}, claim)
        empty, data = mount(volumes, "tmp"), mount(volumes, "data")
        assert not empty.read_only
        assert stat.S_IMODE(empty.source.stat().st_mode) == 0o2777
        assert [path.read_text() for path in data.source.iterdir()] == [content] * bool(content)
        (data.source / "wal").write_text("kept")
        (empty.source / "scratch").write_text("x")
        volumes.remove()
        volumes.remove()
        assert not empty.source.exists()


def test_what_a_node_has_outlives_its_pods(tmp_path):
    arena = {"name": "arena", "hostPath": {"path": "/dev/shm", "type": "Directory"}}
    made = {"name": "made", "hostPath": {"path": "/srv/kv", "type": "DirectoryOrCreate"}}
    volumes = make(tmp_path, arena, made)
    assert mount(volumes, "made").source == tmp_path / "node" / "srv" / "kv"
    (mount(volumes, "arena").source / "kv").write_text("kept")
    volumes.remove()
    assert (mount(make(tmp_path, arena), "arena").source / "kv").read_text() == "kept"


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "none"}}, '"none" not found'),
        ({"secret": {"secretName": "keys", "items": [{"key": "ca", "path": "ca"}]}}, "no key ca"),
        ({"nfs": {"path": "/"}}, "its kind is unknown"),
        ({"hostPath": {"path": "/srv", "type": "Directory"}}, "no directory /srv"),
    ],
)
def test_volumes_that_cannot_be_made(tmp_path, volume, message):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, {"name": "v", **volume})


def test_a_mount_without_its_volume(tmp_path):
    with pytest.raises(ConfigError, match="mounts kv: there is no volume"):
        mount(make(tmp_path), "kv")


def test_mounts_of_processes_that_are_gone_are_found_wherever_they_are():
    mounts = """\
/dev/root / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
baton-test-7 /tmp/pytest-of-root/pytest-3/pods/shm tmpfs rw 0 0
baton-test-8 /tmp/pytest-of-root/garbage-1/pods\\040of/shm tmpfs rw 0 0
baton-test /tmp/earlier tmpfs rw 0 0
baton-tests-8 /tmp/others tmpfs rw 0 0
"""
    found = abandoned_mounts(mounts, {"7"}.__contains__)
    assert found == ["/tmp/earlier", "/tmp/pytest-of-root/garbage-1/pods of/shm"]
