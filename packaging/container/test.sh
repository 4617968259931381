#!/usr/bin/env bash
# Builds the image without a container engine, and follows the lines of docs/operations.md to the first PUT with token and TLS on
# PostgreSQL: packaging/container/test.sh BINARY TREES. Needs root, buildah, PostgreSQL, openssl and curl; TREES is made by
# `scripts/setup.sh debian-trees`, and stands for the base image.
# The word `docker` of those lines is a function here. What it does not do as an engine would: the build stage of the image (BINARY
# stands for it), the image of PostgreSQL (the one of this machine is started as compose.yaml says), networks, and limits.
set -euo pipefail
if [ "${WEIR_TEST_NETWORK:-}" != own ]; then
    # Ports of its own.
    WEIR_TEST_NETWORK=own exec unshare --net --mount "$0" "$@"
fi
ip link set lo up
binary=$(realpath "$1")
trees=$(realpath "$2")
here=$(realpath "$(dirname "$0")")
top=$here/../..
work=$(mktemp -d)
chmod 0755 "$work"
started=()
# What is started in the background has a process group, and ends with all its children.
set -m
buildah() {
    command buildah --root "$work/images" --runroot "$work/run" --storage-driver overlay --storage-opt "overlay.imagestore=$trees/images" "$@"
}
cleanup() {
    for process in "${started[@]}"; do
        kill -TERM -- "-$process" 2>/dev/null || true
        while pgrep -r D,R,S -g "$process" >/dev/null; do sleep 0.1; done
    done
    buildah rm --all >/dev/null 2>&1 || true
    while umount -l "$work/images/overlay" 2>/dev/null; do :; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'echo "error: $0: line $LINENO: $BASH_COMMAND" >&2; tail -n 20 "$work"/*.log >&2' ERR

install -D -m 0755 "$binary" "$work/build/src/target/release/weir"
strip "$work/build/src/target/release/weir"

# A container of an image: its entry point with these words, or without any its own. Options of buildah are in `options`.
run() {
    local image=$1 container entry words
    shift
    container=$(buildah from --pull-never --add-host postgres:127.0.0.1 "$image")
    entry=$(buildah inspect --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' "$container")
    words=("$@")
    [ $# -gt 0 ] || read -ra words <<<"$(buildah inspect --format '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' "$container")"
    # shellcheck disable=SC2086
    buildah run --isolation chroot "${options[@]}" "$container" -- $entry "${words[@]}"
}
docker() {
    case "$1 $2" in
        build*) buildah bud --isolation chroot --pull-never --format docker --build-context "build=$work/build" "${@:2}" >"$work/build.log" 2>&1 ;;
        'run --rm') options=() && run "${@:3}" ;;
        'compose up') compose ;;
        *) return 1 ;;
    esac
}
compose() {
    local file=compose.yaml secret setting bin
    # The database as its image would.
    setting() { sed -n "s/^      $1: //p" "$file"; }
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    install -d -o postgres "$work/database"
    install -o postgres -m 0600 postgres-password "$work/database-password"
    as_postgres() { (cd / && runuser -u postgres -- "$@"); }
    as_postgres "$bin/initdb" -D "$work/database" -U "$(setting POSTGRES_USER)" -A scram-sha-256 \
        --pwfile="$work/database-password" --no-sync >"$work/database.log"
    as_postgres "$bin/postgres" -D "$work/database" -c unix_socket_directories="$work/database" >>"$work/database.log" 2>&1 &
    started+=($!)
    PGPASSWORD=$(cat postgres-password)
    export PGPASSWORD
    until psql -qh 127.0.0.1 -U "$(setting POSTGRES_USER)" -d postgres -c "CREATE DATABASE $(setting POSTGRES_DB)" 2>>"$work/database.log"; do
        kill -0 "${started[0]}"
    done
    options=()
    for secret in $(sed -n '/^secrets:/,$s/^    file: //p' "$file"); do
        options+=(--volume "$PWD/$secret:/run/secrets/$secret:ro")
    done
    while read -r setting; do options+=(--env "$setting"); done < <(sed -n 's/^      \(WEIR_[A-Z_]*\): /\1=/p' "$file")
    run "$(sed -n 's/^    image: //p' "$file" | head -n 1)" >"$work/weir.log" 2>&1 &
    started+=($!)
}
sudo() { "$@"; }

# The sources, where the lines may write.
mkdir -p "$work/sources/packaging"
cp -r "$here" "$work/sources/packaging/"
cp "$top/.dockerignore" "$work/sources/"
sed -n '/^### From the sources to/,/^##/p' "$top/docs/operations.md" | sed -n '/^```sh$/,/^```$/p' | sed '/^```/d' >"$work/lines"
[ "$(wc -l <"$work/lines")" -le 10 ]
cd "$work/sources"
# shellcheck disable=SC1091
. "$work/lines"
[ "$(curl -fsS --cacert cert.pem -H "Authorization: Bearer $(head -n 1 token)" https://localhost:8443/kv/greeting)" = "$(cat /etc/hostname)" ]
[ "$(curl -sk -o /dev/null -w '%{http_code}' https://localhost:8443/kv/greeting)" = 401 ]
[ "$(psql -Ath 127.0.0.1 -U weir -d weir -c 'SELECT count(*) FROM weir_kv')" = 1 ]
# The image: its user, and a health check that tells; without TLS it does not serve others.
container=$(buildah from --pull-never localhost/weir)
[ "$(buildah run --isolation chroot "$container" -- id -un)" = weir ]
buildah run --isolation chroot "$container" -- weir-ready 8081
buildah run --isolation chroot --env WEIR_OPS_LISTEN=127.0.0.1:8081 "$container" -- weir-ready
if buildah run --isolation chroot "$container" -- weir-ready 8082 2>/dev/null; then exit 1; fi
if (options=() && run localhost/weir) 2>"$work/refused.log"; then exit 1; fi
grep -q 'can be reached from other machines' "$work/refused.log"
echo "the image is built and serves as its user, with token and TLS on PostgreSQL"
