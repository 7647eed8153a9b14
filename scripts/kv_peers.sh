#!/usr/bin/env bash
# Install the KV stores that bench.kv.store compares with into DIRECTORY: a venv of their own, and
# Debian packages unpacked beside it. Nothing outside of DIRECTORY changes.
set -euo pipefail
directory=$1
python=${PYTHON:-python3}
mkdir -p "$directory/debs"
"$python" -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet --disable-pip-version-check \
    redis==7.1.0 hiredis==3.3.0 numpy mooncake-transfer-engine-non-cuda==0.3.13.post1
cd "$directory/debs"
apt-get download -q redis-server redis-tools libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 \
    libjemalloc2 liblua5.1-0 lua-cjson lua-bitop liblzf1 libhiredis0.14 libatomic1 libcurl4
for deb in *.deb; do dpkg -x "$deb" ../root; done
