#!/usr/bin/env bash
# Makes sure that what is named is on this machine: scripts/setup.sh cargo cc postgresql mariadb …
#
# Installs what is missing as root, or with sudo where that asks for no password; else says in one line what to
# install. Says nothing and takes no time when everything is there. Never reads standard input.
set -euo pipefail
exec </dev/null

fail() {
    echo "error: $1" >&2
    exit 1
}

# The server's programs are not in everybody's PATH: where Debian puts them is looked at, too.
has_postgresql() {
    local folder
    for folder in ${PATH//:/ } /usr/lib/postgresql/*/bin; do
        [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ] && return
    done
    return 1
}

has_mariadb() {
    local folder server= install=
    for folder in ${PATH//:/ } /usr/sbin /usr/bin; do
        [ ! -x "$folder/mariadbd" ] && [ ! -x "$folder/mysqld" ] || server=there
        [ ! -x "$folder/mariadb-install-db" ] && [ ! -x "$folder/mysql_install_db" ] || install=there
    done
    [ -n "$server" ] && [ -n "$install" ]
}

# Whether a program of this name is here, servers' included.
has_program() {
    local folder
    for folder in ${PATH//:/ } /usr/sbin; do
        [ ! -x "$folder/$1" ] || return 0
    done
    return 1
}

# Whether a program of this name runs.
runs() {
    grep -qx "$1" /proc/[0-9]*/comm 2>/dev/null
}

# A compiler alone does not link: the headers and start files of the C library are a package of their own.
has_cc() {
    command -v cc && echo 'int main(void) { return 0; }' | cc -x c -o /dev/null -
} >/dev/null 2>&1

# Trees of Debian in a directory: `base`, alone, and `services`, which lies on top of it and has what a server's machine has. The tests
# use them read-only.
make_trees() {
    local trees=$1 merged container
    # What a run that failed has left mounted.
    umount -l "$trees/merged" "$trees/images/overlay" 2>/dev/null || true
    rm -rf "$trees"
    mkdir -p "$trees/services" "$trees/work" "$trees/merged"
    debootstrap --variant=minbase bookworm "$trees/base"
    merged=$trees/merged
    mount -t overlay overlay -o "lowerdir=$trees/base,upperdir=$trees/services,workdir=$trees/work" "$merged"
    # Nothing is started while it is installed.
    printf '#!/bin/sh\nexit 101\n' >"$merged/usr/sbin/policy-rc.d"
    chmod 0755 "$merged/usr/sbin/policy-rc.d"
    chroot "$merged" sh -ec 'export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        apt-get install -qy --no-install-recommends systemd logrotate postgresql openssl curl
        apt-get clean'
    rm "$merged/usr/sbin/policy-rc.d"
    umount "$merged"
    # The first one as an image.
    image() { buildah --root "$trees/images" --runroot "$trees/work" --storage-driver overlay "$@"; }
    container=$(image from scratch)
    image add --quiet "$container" "$trees/base" /
    image commit --quiet --rm "$container" docker.io/library/debian:bookworm-slim
    umount "$trees/images/overlay" 2>/dev/null || true
    touch "$trees/complete"
}

packages=()
for need in "$@"; do
    case $need in
        cargo) command -v cargo >/dev/null || fail "there is no cargo; install the Rust toolchain first" ;;
        rustfmt | clippy)
            command -v "cargo-${need/rustfmt/fmt}" >/dev/null && "cargo-${need/rustfmt/fmt}" --version >/dev/null 2>&1 ||
                rustup component add "$need" >/dev/null 2>&1 ||
                fail "cargo has no $need; run: rustup component add $need"
            ;;
        cc) has_cc || packages+=(gcc libc6-dev) ;;
        c++) has_program c++ || packages+=(g++) ;;
        postgresql) has_postgresql || packages+=(postgresql) ;;
        mariadb) has_mariadb || packages+=(mariadb-server) ;;
        nginx) has_program nginx || packages+=(nginx-light) ;;
        varnish) has_program varnishd || packages+=(varnish) ;;
        haproxy) has_program haproxy || packages+=(haproxy) ;;
        redis) has_program redis-server || packages+=(redis-server) ;;
        webdis) has_program webdis || packages+=(webdis) ;;
        chromium)
            has_program chromium || packages+=(chromium)
            has_program chromedriver || packages+=(chromium-driver)
            ;;
        prometheus)
            has_program prometheus && has_program promtool || packages+=(prometheus)
            ;;
        systemd) has_program systemd-socket-activate || packages+=(systemd) ;;
        patroni) has_program patroni || packages+=(patroni python3-etcd) ;;
        etcd) has_program etcd || packages+=(etcd-server) ;;
        node) has_program node || packages+=(nodejs) ;;
        java) has_program java || packages+=(openjdk-17-jre-headless) ;;
        javac) has_program javac || packages+=(openjdk-17-jdk-headless) ;;
        maven) has_program mvn || packages+=(maven) ;;
        go) has_program go || packages+=(golang-go) ;;
        systemd-nspawn) has_program systemd-nspawn || packages+=(systemd-container) ;;
        debian-trees)
            trees="${XDG_CACHE_HOME:-$HOME/.cache}/weir/trees"
            [ -e "$trees/complete" ] && continue
            if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
                echo "setup: no Debian trees: that needs root and a machine that permits mounts; the packages are not tested" >&2
                continue
            fi
            "${BASH_SOURCE[0]}" debootstrap systemd-nspawn buildah ip curl postgresql
            echo "setup: making trees of Debian in $trees, which takes two minutes" >&2
            log=$(mktemp)
            # Waited for: as a condition of || it would go on after an error.
            make_trees "$trees" >"$log" 2>&1 &
            wait $! || {
                tail -n 5 "$log" >&2
                fail "there are no trees of Debian in $trees"
            }
            rm "$log"
            ;;
        ip) has_program ip || packages+=(iproute2) ;;
        openssl | curl | debootstrap | buildah | wrk | valgrind | slowhttptest) has_program "$need" || packages+=("$need") ;;
        python3-venv) python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv) ;;
        python) # what the tests need of PyPI: in a directory of its own, as Debian has no packages of it
            wanted="schemathesis==4.32.5 boto3==1.44.5 awscli==1.46.3 s3cmd==2.4.0 openapi-python-client==0.29.1"
            python="${XDG_CACHE_HOME:-$HOME/.cache}/weir/python"
            [ "$(cat "$python/weir-packages" 2>/dev/null)" = "$wanted" ] || {
                echo "setup: installing $wanted into $python" >&2
                # shellcheck disable=SC2086
                "${BASH_SOURCE[0]}" python3-venv && python3 -m venv "$python" &&
                    "$python/bin/pip" install --quiet --disable-pip-version-check $wanted &&
                    echo "$wanted" >"$python/weir-packages"
            } || fail "python3 cannot install $wanted: apt-get install python3-venv"
            ;;
        mysql) # Debian has it in unstable only: in a directory of its own that the user of databases can read
            place=/var/cache/weir/mysql
            [ "$(id -u)" -eq 0 ] || {
                echo "setup: no MySQL: only root can make a tree of Debian in $place; nothing is tested with it" >&2
                continue
            }
            [ -e "$place/complete" ] || {
                "${BASH_SOURCE[0]}" debootstrap
                echo "setup: getting MySQL into $place, which takes two minutes" >&2
                rm -rf "$place"
                mkdir -p "$place/bin"
                log=$(mktemp)
                debootstrap --variant=minbase --include=mysql-server-core sid "$place/tree" >"$log" 2>&1 || {
                    tail -n 5 "$log" >&2
                    fail "debootstrap cannot get MySQL from Debian unstable"
                }
                rm "$log"
                touch "$place/complete"
            }
            for name in mariadbd mariadb-install-db; do
                install -m 0755 "$(dirname "${BASH_SOURCE[0]}")/mysql.sh" "$place/bin/$name"
            done
            ;;
        cassandra) # Debian has no package of it: its jars from Maven, each as it was when its checksum was taken
            here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/cassandra
            jars="${XDG_CACHE_HOME:-$HOME/.cache}/weir/cassandra"
            cmp -s "$here/jars.sha256" "$jars/complete" && has_program java && continue
            "${BASH_SOURCE[0]}" java maven
            echo "setup: getting Cassandra into $jars" >&2
            rm -rf "$jars"
            mkdir -p "$jars"
            log=$(mktemp)
            mvn --batch-mode --quiet --file "$here/pom.xml" \
                org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
                -DincludeScope=runtime -DexcludeClassifiers=osx-x86_64,osx-aarch_64,windows-x86_64,linux-riscv64 \
                -DoutputDirectory="$jars" >"$log" 2>&1 || {
                tail -n 5 "$log" >&2
                fail "Maven cannot get Cassandra; check that it reaches its repository: mvn --file $here/pom.xml validate"
            }
            rm "$log"
            (cd "$jars" && sha256sum --check --quiet --strict "$here/jars.sha256") ||
                fail "the jars in $jars are not those of $here/jars.sha256"
            cp "$here/jars.sha256" "$jars/complete"
            ;;
        *) fail "setup.sh does not know $need" ;;
    esac
done
[ ${#packages[@]} -gt 0 ] || exit 0

by_hand="install what is missing: apt-get install ${packages[*]}"
command -v apt-get >/dev/null || fail "$by_hand"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
    "${as_root[@]}" true 2>/dev/null || fail "$by_hand"
fi

# The packages of servers start one of the system's own. Nobody asked for it: what did not run is stopped again.
idle=()
for package in "${packages[@]}"; do
    case $package in
        postgresql) runs postgres || idle+=(postgres:postgresql) ;;
        mariadb-server) runs mariadbd || runs mysqld || idle+=(mariadbd:mariadb) ;;
        prometheus) runs prometheus || idle+=(prometheus:prometheus) ;;
        nginx-light) runs nginx || idle+=(nginx:nginx) ;;
        redis-server | webdis | haproxy) runs "$package" || idle+=("$package:$package") ;;
        varnish) runs varnishd || idle+=(varnishd:varnish) ;;
        patroni) runs patroni || idle+=(patroni:patroni) ;;
        etcd-server) runs etcd || idle+=(etcd:etcd) ;;
    esac
done

echo "setup: installing ${packages[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${packages[@]}" >>"$log" 2>&1
}
# Fresh images come without package lists, old ones with lists that name what is no longer there.
install || { "${as_root[@]}" apt-get update >>"$log" 2>&1 && install; } || {
    tail -n 5 "$log" >&2
    fail "$by_hand"
}
for server in "${idle[@]}"; do
    if runs "${server%%:*}"; then
        "${as_root[@]}" service "${server##*:}" stop >>"$log" 2>&1 ||
            echo "setup: the installation started ${server%%:*}; stop it: service ${server##*:} stop" >&2
    fi
done
