# SPDX-License-Identifier: Apache-2.0
"""What a host has that no build may reach. Says where it is; then answers each line with what was touched."""

import ctypes
import json
import os
import socket
import sys
import threading

folder, name, canary = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
number = os.getpid() | 0x67000000


def syscall(which, *arguments):
    words = [one if isinstance(one, (bytes, ctypes.Array)) or one is None else ctypes.c_long(one) for one in arguments]
    return libc.syscall(ctypes.c_long(which), *words)


reached = {}


def serve(what, listener):
    reached[what] = 0
    listener.listen()

    def accept():
        while True:
            stream, _ = listener.accept()
            reached[what] += 1
            stream.sendall(canary.encode())
            stream.close()
    threading.Thread(target=accept, daemon=True).start()


for what, family, address in (("file", socket.AF_UNIX, folder + "/s"), ("abstract", socket.AF_UNIX, "\0" + name),
                              ("loopback", socket.AF_INET, ("127.0.0.1", 0))):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    serve(what, listener)
    port = listener.getsockname()[1] if what == "loopback" else None

with open("/dev/shm/" + name, "w") as file:
    file.write(canary)
key = keyring = -1
if os.uname().machine == "x86_64":
    memory = syscall(29, number, 4096, 0o1600)
    semaphore = syscall(64, number, 1, 0o1600)
    messages = syscall(68, number, 0o1600)
    queue = syscall(240, name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    keys = [syscall(248, b"user", name.encode(), canary.encode(), len(canary), keyring) for keyring in (-4, -5)]
    key, keyring = keys[0], syscall(250, 0, -4, 0)
print(json.dumps({"port": port, "ipc": number, "key_number": key, "keyring_number": keyring}), flush=True)
try:
    for _ in sys.stdin:
        print(json.dumps(reached), flush=True)
finally:
    os.unlink("/dev/shm/" + name)
    if os.uname().machine == "x86_64":
        syscall(31, memory, 0, None)
        syscall(66, semaphore, 0, 0)
        syscall(71, messages, 0, None)
        syscall(241, name.encode())
        for one in keys:
            syscall(250, 3, one)
