#!/usr/bin/env bash
# Makes a Debian package of a weir binary: packaging/debian/build.sh BINARY DIRECTORY; prints the path of the package.
# Needs dpkg-deb (package dpkg) and nothing else of Debian's tools. DEB_COMPRESSION=none is quick, for tests.
set -euo pipefail
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")"
top=$(realpath ../..)

version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

put() { install -D -m "$1" "$2" "$root$3"; }
put 0755 "$binary" /usr/bin/weir
strip --remove-section=.comment "$root/usr/bin/weir" 2>/dev/null || true
put 0644 weir.service /lib/systemd/system/weir.service
put 0644 weir.socket /lib/systemd/system/weir.socket
put 0640 weir.toml /etc/weir/weir.toml
put 0644 logrotate /etc/logrotate.d/weir
for document in operations http-api consistency reference; do
    put 0644 "$top/docs/$document.md" "/usr/share/doc/weir/$document.md"
done
put 0644 copyright /usr/share/doc/weir/copyright
mkdir -p "$root/usr/share/man/man1"
"$binary" man "$root/usr/share/man/man1" >&2
gzip -9n "$root"/usr/share/man/man1/*.1
changed=$(date --utc --rfc-email --date="@${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || date +%s)}")
printf 'weir (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- weir <weir@localhost.localdomain>  %s\n' \
    "$version" "$changed" | gzip -9n >"$root/usr/share/doc/weir/changelog.gz"
completions() {
    install -d "$root$(dirname "$2")"
    "$binary" completions "$1" >"$root$2"
}
completions bash /usr/share/bash-completion/completions/weir
completions zsh /usr/share/zsh/vendor-completions/_weir
completions fish /usr/share/fish/vendor_completions.d/weir.fish

# The oldest C library with every function that the binary uses.
libc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
installed=$(du -sk --apparent-size "$root" | cut -f 1)
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: weir <weir@localhost.localdomain>
Installed-Size: $installed
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, passwd
Recommends: logrotate
Section: database
Priority: optional
Description: HTTP key-value store with a cache over a durable database
 weir serves values over HTTP. It caches them in memory and keeps them in a
 store of its own, in PostgreSQL, or in MySQL or MariaDB. It also contains a
 load generator.
CONTROL
printf '/etc/weir/weir.toml\n/etc/logrotate.d/weir\n' >"$root/DEBIAN/conffiles"
install -m 0755 preinst postinst prerm postrm "$root/DEBIAN"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod 0644 "$root/DEBIAN/md5sums" "$root/DEBIAN/conffiles" "$root/DEBIAN/control"
find "$root" -type d -exec chmod 0755 {} +

package=$out/weir_${version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$root" "$package" >&2
echo "$package"
