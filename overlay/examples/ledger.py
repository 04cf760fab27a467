# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A service that keeps its data in memory: each request's body becomes an entry, the answer is how many there are."""
import http.server
import sqlite3

database = sqlite3.connect(":memory:")
database.execute("create table entries(id integer primary key, text)")


class Ledger(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with database:
            database.execute("insert into entries(text) values (?)", (body.decode(),))
        (count,) = database.execute("select count(*) from entries").fetchone()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d\n" % count)


http.server.HTTPServer(("", 8000), Ledger).serve_forever()
