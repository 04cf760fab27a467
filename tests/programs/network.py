# SPDX-License-Identifier: Apache-2.0 OR MIT
# A thread pool, TLS and asyncio over loopback.
import asyncio, concurrent.futures, hashlib, socket, ssl, threading
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda n: n * n, range(100))))
# A megabyte each way through TLS over loopback, in small pieces.
def context(kind):
    made = ssl.SSLContext(kind)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers('AECDH-AES256-SHA:@SECLEVEL=0')
    return made
def serve(listener):
    with context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(listener.accept()[0], server_side=True) as peer:
        while data := peer.recv(8192):
            peer.sendall(data)
listener = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=serve, args=(listener,), daemon=True).start()
client = context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(socket.create_connection(listener.getsockname()))
sent, got = bytes(range(256)) * 4096, b''
threading.Thread(target=client.sendall, args=(sent,)).start()
while len(got) < len(sent):
    got += client.recv(65536)
print(client.version(), hashlib.sha1(got).digest() == hashlib.sha1(sent).digest())
async def main():
    async def echo(reader, writer):
        writer.write(await reader.read())
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(echo, '127.0.0.1', 0)
    async def ask(n):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b'x' * n)
        writer.write_eof()
        return len(await reader.read())
    print(sum(await asyncio.gather(*[ask(n * 20000) for n in range(10)])))
asyncio.run(main())
