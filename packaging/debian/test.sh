#!/usr/bin/env bash
# Boots a Debian with systemd, follows the lines of docs/operations.md there from a package to the first PUT with token and TLS on
# PostgreSQL, then restarts, kills, reloads, purges and installs it anew: packaging/debian/test.sh PACKAGE TREES.
# Needs root and systemd-nspawn; TREES is made by `scripts/setup.sh debian-trees` and not changed.
set -euo pipefail
package=$(realpath "$1")
trees=$(realpath "$2")
docs=$(realpath "$(dirname "$0")/../../docs")
work=$(mktemp -d)
cleanup() {
    umount -l "$work/machine" "$work/scratch" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'echo "error: $0: line $LINENO: $BASH_COMMAND" >&2' ERR
# What the test writes is dropped.
mkdir "$work/scratch" "$work/machine"
mount -t tmpfs tmpfs "$work/scratch"
mkdir "$work/scratch/upper" "$work/scratch/work"
mount -t overlay overlay -o "lowerdir=$trees/services:$trees/base,upperdir=$work/scratch/upper,workdir=$work/scratch/work" "$work/machine"

cp "$package" "$work/machine/srv/"
sed -n '/^### From a package to/,/^##/p' "$docs/operations.md" | sed -n '/^```sh$/,/^```$/p' | sed '/^```/d' >"$work/machine/srv/lines"
[ "$(wc -l <"$work/machine/srv/lines")" -le 10 ]
cat >"$work/machine/srv/test" <<'TEST'
#!/bin/bash
set -Eeuxo pipefail
trap 'journalctl --no-pager -u weir -n 50' ERR
cd /srv
. ./lines

ask() { curl -fsS --retry 30 --retry-connrefused --retry-delay 1 --cacert /etc/weir/cert.pem -H "Authorization: Bearer $(cat ~/weir-token)" "https://$(hostname):8443$1"; }
of_weir() { systemctl show --value --property "$1" weir; }
[ "$(ask /kv/greeting)" = "$(hostname)" ]
[ "$(curl -sk -o /dev/null -w '%{http_code}' "https://$(hostname):8443/kv/greeting")" = 401 ]
runuser -u postgres -- psql -Atc 'SELECT version()' weir
# Started by the unit, as its user, watched, and confined.
[ "$(of_weir SubState)" = running ]
[ "$(stat -c %U "/proc/$(of_weir MainPID)")" = weir ]
[ "$(of_weir StatusText)" != '' ]
systemctl is-enabled weir
systemd-analyze security --no-pager --threshold=20 weir | tail -n 1
# What restarts it: a person, its own end, and a reload does not.
systemctl restart weir
[ "$(ask /kv/greeting)" = "$(hostname)" ]
kill -KILL "$(of_weir MainPID)"
# Until it is dead it takes connections, and resets them then.
until [ "$(of_weir NRestarts)" = 1 ]; do sleep 0.1; done
[ "$(ask /kv/greeting)" = "$(hostname)" ]
before=$(of_weir MainPID)
systemctl reload weir
[ "$(ask /kv/greeting)" = "$(hostname)" ]
[ "$(of_weir MainPID)" = "$before" ]
# Its log file is rotated without a signal.
echo 'access-log = "/var/log/weir/access.log"' >>/etc/weir/weir.toml
systemctl restart weir
ask /kv/greeting
until grep -q '"path":"/kv/greeting"' /var/log/weir/access.log; do sleep 0.1; done
logrotate --force /etc/logrotate.d/weir
until ask /kv/greeting && [ -s /var/log/weir/access.log ]; do sleep 0.1; done
[ "$(stat -c '%U %a' /etc/weir/weir.toml)" = 'root 640' ]
# An upgrade restarts what runs, and starts nothing, also without the settings.
systemctl reset-failed weir
before=$(of_weir MainPID)
dpkg -i /srv/weir_*.deb
[ "$(of_weir ActiveState)" = active ]
[ "$(of_weir MainPID)" != "$before" ]
systemctl stop weir
mv /etc/weir/weir.toml /srv/
dpkg -i /srv/weir_*.deb
mv /srv/weir.toml /etc/weir/
[ "$(of_weir ActiveState)" = inactive ]
# What is removed comes back as it was.
for state in active inactive; do
    [ "$state" = active ] || systemctl disable --now weir
    dpkg --remove weir
    [ "$(of_weir ActiveState)" = inactive ]
    dpkg -i /srv/weir_*.deb
    [ "$(of_weir ActiveState)" = "$state" ]
done
systemctl enable weir
# Nothing of it is left but its user, and it is installed anew with the settings that it comes with.
dpkg --purge weir
[ ! -e /var/lib/weir ]
[ ! -e /var/log/weir ]
[ -z "$(find /etc/systemd -name 'weir.*')" ]
getent passwd weir
dpkg -i /srv/weir_*.deb
curl -fsS --retry 30 --retry-connrefused -T /etc/hostname http://localhost:8080/kv/greeting
weir store backup /var/lib/weir/data /srv/copy
systemctl restart weir
[ "$(curl -fsS --retry 30 --retry-connrefused http://localhost:8080/kv/greeting)" = "$(hostname)" ]
test -s /usr/share/man/man1/weir-serve.1.gz
bash -n /usr/share/bash-completion/completions/weir
TEST
chmod 0755 "$work/machine/srv/test"
cat >"$work/machine/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=multi-user.target postgresql.service
SuccessAction=exit
FailureAction=exit
FailureActionExitStatus=1

[Service]
Type=oneshot
Environment=HOME=/srv LC_ALL=C.UTF-8
ExecStart=/srv/test
StandardOutput=file:/srv/output
StandardError=inherit
TimeoutStartSec=5min
UNIT
mkdir -p "$work/machine/etc/systemd/system/graphical.target.wants"
ln -s ../test.service "$work/machine/etc/systemd/system/graphical.target.wants/"
# There is no network to wait for.
for unit in systemd-networkd.service systemd-networkd-wait-online.service systemd-firstboot.service; do
    ln -sf /dev/null "$work/machine/etc/systemd/system/$unit"
done
tr -d - </proc/sys/kernel/random/uuid >"$work/machine/etc/machine-id"
echo kv >"$work/machine/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 kv\n' >"$work/machine/etc/hosts"
systemd-nspawn --quiet --directory "$work/machine" --machine "weir-test-$$" --hostname kv --register=no --keep-unit --private-network \
    --resolv-conf=off --boot >"$work/console" 2>&1 </dev/null || {
    tail -n 60 "$work/machine/srv/output" >&2 || tail -n 60 "$work/console" >&2
    exit 1
}
grep 'overall exposure' -i "$work/machine/srv/output" || true
echo "systemd starts, restarts and reloads the package, and it goes"
