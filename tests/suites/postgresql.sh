#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# postgresql.sh SOURCE OUT: makes ready what PostgreSQL's regression tests (`make installcheck`) take beside a server, from the
# unpacked source of Debian's package: OUT/bin has pg_regress and psql, psql of the source's own version, as the expected output
# is psql's; OUT/lib their library; OUT/tests the tests with the modules that the server loads.
set -euo pipefail

source=$(readlink -f "$1")
mkdir -p "$2"/{packages,unpacked,bin,lib}
out=$(readlink -f "$2")
version=$(cd "$source" && dpkg-parsechangelog -S Version)

(cd "$out/packages" && apt-get -qq download postgresql-server-dev-15 libpq5 libpq-dev &&
  { apt-get -qq download "postgresql-client-15=$version" || apt-get -qq download postgresql-client-15; })
for package in "$out"/packages/*.deb; do dpkg -x "$package" "$out/unpacked"; done
unpacked=$out/unpacked/usr
cp -a "$unpacked"/lib/*-linux-gnu/libpq.so.5* "$out/lib/"
cp "$unpacked/lib/postgresql/15/lib/pgxs/src/test/regress/pg_regress" "$unpacked/lib/postgresql/15/bin/psql" "$out/bin/"

cp -r "$source/src/test/regress" "$out/tests"
module() {
  cc -O2 -w -shared -fPIC -DREFINT_VERBOSE -I "$unpacked/include/postgresql/15/server" -I "$unpacked/include/postgresql/internal" \
    -I "$unpacked/include/postgresql" "$source/$1" -o "$out/tests/$(basename "$1" .c).so"
}
module src/test/regress/regress.c
module contrib/spi/autoinc.c
module contrib/spi/refint.c
# The server is another user, and writes what COPY and tablespaces say.
chmod -R a+rX "$out/tests"
mkdir "$out/written"
chmod 777 "$out/written"
(umask 0 && mkdir "$out/written/results" "$out/written/testtablespace")
