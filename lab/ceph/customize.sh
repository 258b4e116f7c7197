#!/bin/sh
# Makes a fresh Debian with Ceph fit for Rook. Its argument is the root of that Debian; run by mmdebstrap, as root.
set -eu
root=$1

# Rook runs daemons as this user and group, by number, as in Ceph's own images.
chroot "$root" groupmod --gid 167 ceph
chroot "$root" usermod --uid 167 --gid 167 ceph
chroot "$root" chown -R ceph:ceph /var/lib/ceph /var/log/ceph

# Python runs each module of the manager in an interpreter of its own, which this Debian's bcrypt, written in Rust, refuses: 13 modules
# would fail. The bcrypt of the Debian before is written in C and does not mind. It is put where it is found first.
sources="$root/etc/apt/sources.list.d/before.list"
grep -h '^deb ' "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*.list 2>/dev/null | sed -n '1s/trixie/bookworm/p' > "$sources"
chroot "$root" apt-get update -qq
chroot "$root" sh -c 'cd /tmp && apt-get download -qq python3-bcrypt/bookworm && dpkg-deb --extract python3-bcrypt_*.deb bcrypt'
mv "$root/tmp/bcrypt/usr/lib/python3/dist-packages/bcrypt" "$root"/usr/local/lib/python3.13/dist-packages/
rm -rf "$root"/tmp/* "$sources"

# Rook asks for the version of the device mapper and uses nothing else of it; there need not be one in the machine's kernel.
cat > "$root/usr/sbin/dmsetup" <<'END'
#!/bin/sh
[ "$1" = version ] && echo "Library version: 1.02.205 (lab)"
END
chmod 755 "$root/usr/sbin/dmsetup"
rm -rf "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
