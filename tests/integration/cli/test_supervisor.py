"""A local cluster, run for real: it serves, it mends itself, and it leaves nothing behind."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton import __version__
from baton.client import Client
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.postgres.local.programs import find_programs
from tests.support.clock import Stopwatch
from tests.support.models.checkpoint import safetensors
from tests.support.processes.freeze import freeze

pytestmark = [pytest.mark.xdist_group("supervisor"), pytest.mark.timeout(300)]
"""On one worker: most of these share one cluster of processes."""

Start = Callable[..., Any]
INSTANCES = {"frontend-0", "router-0", "kvstore-0", "prefill-0", "decode-0"}


def test_up_serves_and_ctrl_c_waits_and_leaves_nothing(baton: Start) -> None:
    run = baton("up", BATON_ENGINE_SIM_DECODE_STEP_SECONDS="0.1")
    run.until_up()
    pids = run.children()
    assert len(pids) == 6, pids  # etcd, kvstore, router, prefill, decode, frontend

    asked = run.call("chat", "Hello", "--max-tokens", "8", "--steps")
    assert asked.returncode == 0, asked.stderr
    assert "8 tokens in" in asked.stdout
    assert "route" in asked.stdout
    assert "decode-0" in asked.stdout
    assert "tiny" in run.call("models").stdout

    status = run.call("status")
    for identity in ("frontend-0", "router-0", "kvstore-0", "prefill-0", "decode-0"):
        (row,) = [line for line in status.stdout.splitlines() if line.startswith(identity)]
        assert "SERVING" in row
    assert f"All instances run {__version__}" in status.stdout
    assert "All routers: prefix index in a dict (" in status.stdout

    with urllib.request.urlopen(f"{run.line('OpenAI')}/models", timeout=30) as answer:
        assert json.load(answer)["data"][0]["id"] == "tiny"

    with (
        Client(run.line("gRPC"), timeout=60.0) as client,
        client.generate("Once", model="tiny", max_tokens=100, ignore_eos=True) as stream,
    ):
        next(stream)
        run.process.send_signal(signal.SIGINT)
        said = (
            "Waiting up to 20 s for 1 request to finish on frontend-0. Press Ctrl-C again to kill."
        )
        assert run.says(said, 9), run.stderr
        assert len(stream.answer().token_ids) == 100  # it finished
    assert run.ends(20) == 0, run.stderr
    assert run.left(pids, 5.0) == {}
    assert list((run.directory / "arena").iterdir()) == []
    (kept,) = (run.directory / "run" / "baton").iterdir()  # no etcd data, no record of the cluster
    (logs,) = kept.iterdir()
    assert run.stdout.splitlines()[-1] == f"Stopped. Logs: {logs}"
    names = INSTANCES | {"etcd", "supervisor"}
    assert {path.name for path in logs.iterdir()} == {f"{name}.log" for name in names}
    assert "process.service.stopped" in (logs / "frontend-0.log").read_text()


def test_a_port_in_use_is_named(baton: Start, cluster: Any) -> None:
    port = cluster.line("gRPC").rpartition(":")[2]
    run = baton("up", "--grpc-port", port)
    assert run.ends(30) == 2
    assert f"Port {port} on 127.0.0.1 is in use" in run.stderr


def test_clusters_on_one_etcd_need_names_and_killed_supervisors_orphan_nothing(
    baton: Start, cluster: Any
) -> None:
    etcd = cluster.line("etcd")
    same = baton("up", "--etcd-endpoint", etcd)
    assert same.ends(30) == 2
    assert "already has instance" in same.stderr
    other = baton("up", "--etcd-endpoint", etcd, "--cluster", "other", "--auth", "keys")
    other.until_up()
    pids = other.children()
    assert len(pids) == 6  # no etcd of its own, and a Postgres for usage
    asked = other.call("chat", "Hello", BATON_API_KEY=other.line("key"))
    assert asked.returncode == 0, asked.stderr
    assert other.call("db", "status").returncode == 0
    query = "select sum(output_tokens) > 0 and count(*) = 1 from usage_records"
    psql = [str(find_programs() / "psql"), other.line("usage"), "-Atc", query]
    other.until(lambda: subprocess.check_output(psql) == b"t\n", 30)
    assert subprocess.check_output(psql) == b"t\n"
    other.process.kill()
    other.process.wait()
    assert other.left(pids, 30.0) == {}
    assert list((other.directory / "arena").iterdir()) == []


def test_dead_processes_are_reported_and_started_again(cluster: Any) -> None:
    run = cluster
    for identity in ("decode-0", "frontend-0"):
        pid = run.child(identity)
        os.kill(pid, signal.SIGKILL)
        assert run.says(f"{identity} is ready again", 60), run.stderr
        assert f"{identity} (pid {pid}) was killed by SIGKILL" in run.stderr
        assert "  | " in run.stderr  # its last log lines
        assert run.child(identity) != pid
    asked = run.call("chat", "Hello", "--max-tokens", "4")
    assert asked.returncode == 0, asked.stderr


def test_metrics_are_found_where_prometheus_looks_also_after_a_restart(cluster: Any) -> None:
    run = cluster
    assert metrics_answer(run).keys() == INSTANCES
    before = targets(run)["decode-0"]
    pid = run.child("decode-0")
    os.kill(pid, signal.SIGKILL)
    run.until(lambda: targets(run).get("decode-0", before) != before, 60)
    assert metrics_answer(run).keys() == INSTANCES


def targets(run: Any) -> dict[str, str]:
    """The addresses in the file that the banner names, by instance."""
    groups = json.loads(Path(run.line("targets")).read_text())
    return {group["labels"]["instance"]: group["targets"][0] for group in groups}


def metrics_answer(run: Any) -> dict[str, str]:
    """What each target answers; fails if one does not."""
    texts = {}
    for name, address in targets(run).items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            texts[name] = answer.read().decode()
        assert "baton_" in texts[name]
    return texts


def test_a_stream_goes_on_when_its_frontend_is_killed(cluster: Any) -> None:
    with Client(cluster.line("gRPC"), timeout=60.0, retries=100) as client:
        whole = client.generate("Once", model="tiny", max_tokens=300, seed=5, ignore_eos=True)
        expected = whole.answer()
        stream = client.generate(
            "Once", model="tiny", max_tokens=300, seed=5, ignore_eos=True, resume=True
        )
        with stream:
            while len(stream.token_ids) < 20:
                next(stream)
            os.kill(cluster.child("frontend-0"), signal.SIGKILL)
            received = len(stream.token_ids)
            answer = stream.answer()
    assert received < 300  # it was cut off
    assert answer.token_ids == expected.token_ids
    assert answer.text == expected.text


def test_etcd_is_started_again_and_keeps_its_members(cluster: Any) -> None:
    run = cluster
    (etcd,) = [pid for pid, line in run.children().items() if "/etcd " in line]
    os.kill(etcd, signal.SIGKILL)
    assert run.says("etcd is ready again", 60)
    assert f"etcd (pid {etcd}) was killed by SIGKILL" in run.stderr
    asked = run.call("chat", "Hello", "--max-tokens", "4")
    assert asked.returncode == 0, asked.stderr
    status = run.call("status")
    assert status.stdout.count("SERVING") == 5, status.stdout


def test_a_broken_checkpoint_stops_everything_with_a_sentence(baton: Start, tmp_path: Path) -> None:
    broken = write_random_checkpoint(tmp_path / "broken")
    # Its header and length are right, so that only a worker that loads it notices.
    (broken / "model.safetensors").write_bytes(safetensors({"lm_head.weight": b"12345678"}))
    run = baton("up", "--model", str(broken), engine="torch")
    assert run.ends(60) == 2, run.stderr
    assert "cannot start" in run.stderr
    assert "has no tensor model.embed_tokens.weight" in run.stderr
    assert "Traceback" not in run.stderr
    assert run.children() == {}


def test_the_demo_answers_and_says_what_happened(baton: Start) -> None:
    run = baton("demo", engine="torch")
    pids: dict[int, str] = {}
    watch = Stopwatch()
    while run.process.poll() is None and watch.remaining(90):
        pids |= run.children()
        time.sleep(0.1)
    assert run.process.poll() == 0, run.stderr
    steps = [line.split()[0] for line in run.stdout.splitlines() if line.strip()]
    for step in ("route", "prefill", "transfer", "decode"):
        assert steps.count(step) >= 1, run.stdout
    assert run.stdout.count("prompt tokens") == 3
    cached = [int(line.split()[-6]) for line in run.stdout.splitlines() if "prompt tokens" in line]
    assert cached[1] > 0  # the second turn finds the first one's KV
    assert "The engines use plain torch operators" in run.stderr
    assert run.left(pids, 5.0) == {}


def test_a_process_that_is_frozen_is_replaced(cluster: Any) -> None:
    run, back = cluster, "frontend-0 is ready again"
    before = run.stderr.count(back)
    pid = run.child("frontend-0")
    freeze(pid)
    said = f"Killing frontend-0 (pid {pid}): it has been stopped for 3 s."
    assert run.says(said, 20), run.stderr
    run.until(lambda: run.stderr.count(back) > before, 60)
    assert run.call("chat", "Hello", "--max-tokens", "2").returncode == 0


def test_a_process_that_keeps_dying_is_given_up(cluster: Any) -> None:
    run = cluster
    given_up = "prefill-0 exited 3 times"
    killed = 0
    while (pid := _next_pid(run, "prefill-0", given_up)) is not None:
        killed += 1
        assert killed <= 4  # the first one may have lived long enough not to count
        os.kill(pid, signal.SIGKILL)
        assert run.says(f"prefill-0 (pid {pid})", 30)
    assert killed >= 3
    assert given_up in run.stderr
    assert run.process.poll() is None
    asked = run.call("chat", "Hello", "--max-tokens", "4")  # decode-0 prefills by itself
    assert asked.returncode == 0, asked.stderr


def _next_pid(run: Any, instance_id: str, given_up: str) -> int | None:
    """The pid of an instance once it runs; None once it is said to be given up."""
    watch = Stopwatch()
    while watch.remaining(60):
        if given_up in run.stderr:
            return None
        pid = run.child(instance_id)
        if pid is not None:
            return int(pid)
        time.sleep(0.02)
    raise AssertionError(f"{instance_id} was not started again")


def test_a_second_ctrl_c_kills(clusters: Any) -> None:
    run = clusters(whole=False)
    pids = run.children()
    freeze(run.child("frontend-0"))  # it will not drain
    run.process.send_signal(signal.SIGINT)
    assert run.says("Stopping", 20)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGINT)
    assert run.ends(20) is not None
    assert run.left(pids, 5.0) == {}


def test_pools_go_to_zero_and_a_request_brings_them_back(baton: Start) -> None:
    run = baton(
        "up",
        "--autoscale",
        "0:2",
        BATON_SCALING_IDLE_SECONDS="1",
        BATON_SCALING_ARRIVAL_SECONDS="5",
    )
    run.until_up()
    assert "  scaling  prefill 0 to 2, decode 0 to 2, as many as the router needs\n" in run.stdout
    for role in ("prefill", "decode"):
        assert run.says(f"Scaling {role} from 1 to 0: routers need 0.", 60), run.stderr
    assert run.call("models").returncode == 0, "it is known without workers"
    asked = run.call("chat", "Hello", "--max-tokens", "4")
    assert asked.returncode == 0, asked.stderr
    assert "4 tokens in" in asked.stdout
    assert "Scaling decode from 0 to 1: routers need 1." in run.stderr
    run.process.send_signal(signal.SIGINT)
    assert run.ends(30) == 0, run.stderr
