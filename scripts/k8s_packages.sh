#!/usr/bin/env bash
# Install what `make k8s-test` runs images and pods with, from Debian's packages, where it is missing.
set -euo pipefail
packages=()
need() {
    for file in "${@:2}"; do
        if [ -e "$file" ] || command -v "$file" >/dev/null; then return; fi
    done
    packages+=("$1")
}
need podman podman
need runc runc
need buildah buildah
need mmdebstrap mmdebstrap
need iptables iptables /usr/sbin/iptables
need iproute2 ip
need catatonit catatonit /usr/libexec/podman/catatonit
need containernetworking-plugins /usr/lib/cni/bridge
need busybox-static busybox
[ ${#packages[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: install ${packages[*]} (by these names in Debian), and run this as root" >&2
    exit 1
fi
echo "installing ${packages[*]}"
mkdir -p build
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -q && apt-get install -yq --no-install-recommends "${packages[@]}"; } >build/k8s-packages.log 2>&1 \
    || { tail -n 15 build/k8s-packages.log >&2; exit 1; }
