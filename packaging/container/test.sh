#!/usr/bin/env bash
# Takes the steps of the Dockerfile's last stage without a container engine, and uses the server as a container would:
# packaging/container/test.sh BINARY ROOT. Needs root and curl; ROOT is a tree of `debootstrap --variant=minbase bookworm`, which
# stands for the base image. The build stage is not run, nor are volumes, networks or limits of an engine.
set -euo pipefail
binary=$(realpath "$1")
tree=$(realpath "$2")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    umount -l "$work/merged" "$work/scratch" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/scratch" "$work/merged"
mount -t tmpfs tmpfs "$work/scratch"
mkdir "$work/scratch/upper" "$work/scratch/work"
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/scratch/upper,workdir=$work/scratch/work" "$work/merged"

stage=$(sed -n '/^FROM debian/,$p' "$here/Dockerfile" | sed -e ':a' -e '/\\$/N; s/\\\n//; ta')
chroot "$work/merged" sh -ec "$(sed -n 's/^RUN //p' <<<"$stage")"
install -m 0755 "$binary" "$work/merged/usr/bin/weir"
install -m 0755 "$here/ready" "$work/merged/usr/bin/weir-ready"
[ ! -e "$work/merged/dev/null" ] || mount --bind /dev "$work/merged/dev" 2>/dev/null || true
read -ra environment <<<"$(sed -n 's/^ENV //p' <<<"$stage") PATH=/usr/bin:/bin"
user=$(sed -n 's/^USER //p' <<<"$stage")
run() { exec chroot --userspec="$user:$user" "$work/merged" env -i "${environment[@]}" "$@"; }

# Reached from outside: without TLS it has to be told that this is meant.
! (run weir serve 2>"$work/errors")
grep -q 'can be reached from other machines' "$work/errors"
run WEIR_LISTEN=127.0.0.1:0 weir serve >"$work/output" &
server=$!
until grep -q '^listening ' "$work/output"; do kill -0 "$server" || exit 1; done
address=$(sed -n 's/^listening //p' "$work/output")
curl -fsS -X PUT --data-binary hello "http://$address/kv/greeting"
[ "$(curl -fsS "http://$address/kv/greeting")" = hello ]
(run weir-ready "${address##*:}")
kill -TERM "$server"
wait "$server"
server=
! (run weir-ready "${address##*:}" 2>/dev/null)
[ "$(stat -c %u "$work/merged/var/lib/weir/data")" = 10001 ]
umount -l "$work/merged/dev" 2>/dev/null || true
echo "the image's last stage serves as user $user, and its health check tells"
