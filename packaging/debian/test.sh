#!/usr/bin/env bash
# Installs a package in a fresh Debian, starts the server as the unit does, uses it, and removes it:
# packaging/debian/test.sh PACKAGE [ROOT]. Needs root, debootstrap and curl; ROOT is a tree of debootstrap to use.
# systemd does not run there: what the unit confines is not tested, only what it starts, as which user and where.
set -euo pipefail
package=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
root=${2:-}
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    umount -l "$work/merged" "$work/scratch" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
if [ -z "$root" ]; then
    root=$work/tree
    debootstrap --variant=minbase bookworm "$root" >&2
fi
# What the test writes is dropped.
mkdir "$work/upper" "$work/scratch" "$work/merged"
mount -t tmpfs tmpfs "$work/scratch"
mkdir "$work/scratch/upper" "$work/scratch/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/scratch/upper,workdir=$work/scratch/work" "$work/merged"

inside() { chroot "$work/merged" "$@"; }
of_unit() { sed -n "s/^$1=//p" "$work/merged/lib/systemd/system/weir.service"; }
cp "$package" "$work/merged/tmp/weir.deb"
inside dpkg -i /tmp/weir.deb >&2
[ "$(inside stat -c '%U:%G %a' /etc/weir/weir.toml)" = 'root:weir 640' ]
inside test -s /usr/share/man/man1/weir-serve.1.gz
inside bash -n /usr/share/bash-completion/completions/weir

# What systemd makes before it starts the unit.
user=$(of_unit User) group=$(of_unit Group)
inside install -d -o "$user" -g "$group" -m "$(of_unit StateDirectoryMode)" "/var/lib/$(of_unit StateDirectory)"
inside install -d -o "$user" -g "$group" -m "$(of_unit LogsDirectoryMode)" "/var/log/$(of_unit LogsDirectory)"
echo 'access-log = "/var/log/weir/access.log"' >>"$work/merged/etc/weir/weir.toml"
start() {
    : >"$work/output"
    # shellcheck disable=SC2046
    chroot --userspec="$user:$group" "$work/merged" sh -c "cd $(of_unit WorkingDirectory) && umask $(of_unit UMask) && exec $(of_unit ExecStart)" \
        >"$work/output" &
    server=$!
    until grep -q '^listening ' "$work/output"; do kill -0 "$server" || exit 1; done
}
stop() {
    kill -TERM "$server"
    wait "$server"
    server=
}
start
url=http://$(sed -n 's/^listening //p' "$work/output")
curl -fsS -X PUT --data-binary hello "$url/kv/greeting"
stop
start
[ "$(curl -fsS "$url/kv/greeting")" = hello ]
[ "$(curl -fsS "$url/readyz")" = ready ]
stop
[ "$(grep -c '"path":"/kv/greeting"' "$work/merged/var/log/weir/access.log")" = 2 ]
inside dpkg --purge weir >&2
! inside test -e /var/lib/weir
! inside getent passwd weir
echo "the package of $package installs, serves and goes"
