"""A server as uvicorn makes one with workers: the parent binds, two spawned workers listen. ``PORT FOLDER
[deaf|drains]``: deaf workers ignore SIGTERM, draining ones close the socket at SIGTERM and do not end; a parent that is
told to end waits for them. Under the name ``litellm`` it takes
``--config FILE --port PORT`` and answers as LiteLLM's health does; a configuration that says ``broken`` ends it."""

import multiprocessing
import os
import signal
import socket
import sys
import time


def work(sock, folder, how):
    def drain(*_):
        sock.close()
        with open(os.path.join(folder, f"drains.{os.getpid()}"), "w"):
            pass
        while True:
            time.sleep(1)

    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "drains":
        signal.signal(signal.SIGTERM, drain)
    sock.listen(16)
    with open(os.path.join(folder, f"worker.{os.getpid()}"), "w"):
        pass
    while True:
        client, _ = sock.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.0 200 OK\r\n\r\n")


if __name__ == "__main__":
    how = sys.argv[-1]
    if os.path.basename(sys.argv[0]) == "litellm":
        options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
        port, folder = int(options["--port"]), os.getcwd()
        with open(options["--config"]) as file:
            if "broken" in file.read():
                sys.exit("ValueError: the configuration is broken")
    else:
        port, folder = int(sys.argv[1]), sys.argv[2]
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(listener, folder, how)) for _ in range(2)]

    def end(*_):
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    for worker in workers:
        worker.start()
    while True:
        time.sleep(1)
