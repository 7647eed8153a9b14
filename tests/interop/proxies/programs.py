"""nginx and HAProxy as an operator sets them up in front of a server of streams."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from baton.cluster.etcd.local import free_port
from bench.harness.child import process

NEEDED = {"nginx": "nginx-light", "haproxy": "haproxy"}
"""Programs, and the packages of Debian that have them."""
_START_SECONDS = 10.0
_NGINX = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  upstream baton {{ server 127.0.0.1:{upstream}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{kept};
    location / {{
      proxy_pass http://baton;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
  server {{
    listen 127.0.0.1:{offering};
    location / {{
      proxy_pass http://baton;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_request_buffering off;
    }}
  }}
  server {{
    listen 127.0.0.1:{plain};
    location / {{ proxy_pass http://baton; }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  option forwardfor
  default_backend baton
backend baton
  server baton 127.0.0.1:{upstream}
"""


def missing() -> list[str]:
    """Return the packages of what is not installed here."""
    return [package for program, package in NEEDED.items() if _find(program) is None]


def _find(program: str) -> str | None:
    return shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


@asynccontextmanager
async def proxies(upstream: int, directory: Path) -> AsyncIterator[dict[str, int]]:
    """Run both until the block ends; yields the port of each way through them, by its name.

    Args:
        upstream: port of the server on this machine.
        directory: for their files.
    """
    kept, offering, plain, port = (free_port() for _ in range(4))
    ports = {
        "nginx, 1.1 kept": kept,
        "nginx, 1.1 with offers": offering,
        "nginx, 1.0": plain,
        "HAProxy": port,
    }
    (directory / "nginx.conf").write_text(
        _NGINX.format(
            directory=directory, upstream=upstream, kept=kept, offering=offering, plain=plain
        )
    )
    (directory / "haproxy.cfg").write_text(_HAPROXY.format(port=port, upstream=upstream))
    nginx = (_find("nginx") or "", "-e", str(directory / "e"), "-c", str(directory / "nginx.conf"))
    haproxy = (_find("haproxy") or "", "-f", str(directory / "haproxy.cfg"))
    async with process(nginx, {}), process(haproxy, {}):
        for one in ports.values():
            await _listening(one)
        yield ports


async def _listening(port: int) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
