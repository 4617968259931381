#!/usr/bin/env bash
# MySQL under the names and with the arguments of MariaDB, for the tests: scripts/setup.sh mysql puts it beside a tree of
# Debian that has MySQL, as mariadbd and mariadb-install-db. It runs with the libraries of that tree.
set -euo pipefail

tree=$(realpath "$(dirname "$0")/../tree")
libraries=$tree/usr/lib/$(uname -m)-linux-gnu
data='' given=()
for argument in "$@"; do
    case $argument in
        --datadir=*) data=${argument#*=} ;;
        # First of all, or of MariaDB only.
        --no-defaults | --log-warnings=* | --socket= | --auth-root-authentication-method=* | --skip-test-db) continue ;;
    esac
    given+=("$argument")
done
own=(--no-defaults "--basedir=$tree/usr" "--lc-messages-dir=$tree/usr/share/mysql" --secure-file-priv=)
case $0 in
    *-install-db) own+=(--initialize-insecure) ;;
    *) own+=(--mysqlx=OFF "--socket=${data%/*}/socket") ;;
esac
exec "$libraries"/ld-linux-*.so.* --library-path "$libraries" "$tree/usr/sbin/mysqld" "${own[@]}" "${given[@]}"
