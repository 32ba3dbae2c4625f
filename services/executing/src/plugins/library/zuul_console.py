#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""zuul_console: serves on a node what its commands write, while they run.

A process that stays on the node and answers on a TCP port. Zuul: the same parameters, port and protocol; a client sends
lines `v:<its version>` (the answer is this one's), `s:<log id>` (all lines of that log follow, also those to come) and
`f:<log id>` (the log is read and can go). Runs on Python 2.7 too.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import glob
import os
import re
import select
import signal
import socket
import stat
import sys
import threading
import time

from ansible.module_utils.basic import AnsibleModule

VERSION = b"1\n"
LOG_FILE = "/tmp/console-{log_uuid}.log"
PORT = 19885
LONGEST_REQUEST = 1024
# Seconds for a request, and between two looks at a log.
PATIENCE = 10
PAUSE = 0.2
# Connections at one time.
MOST = 200


def listen(port):
    """A listening socket; None if the port is taken."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        try:
            server = socket.socket(family, socket.SOCK_STREAM)
        except (IOError, OSError):
            continue
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind((address, port))
            server.listen(16)
            return server
        except (IOError, OSError, socket.error) as error:
            server.close()
            if error.errno == errno.EADDRINUSE:
                return None
            if family == socket.AF_INET:
                raise
    return None


def stay(server):
    """Whether this is the process that stays. It holds nothing of the task's but the socket."""
    if os.fork() > 0:
        return False
    os.chdir("/")
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, server.fileno())
    os.closerange(server.fileno() + 1, 1024)
    return True


def serve(server, path):
    room = threading.Semaphore(MOST)
    while True:
        try:
            connection = server.accept()[0]
        except (IOError, OSError, socket.error):
            time.sleep(PAUSE)
            continue
        if not room.acquire(False):
            connection.close()
            continue
        thread = threading.Thread(target=answer, args=(connection, path, room))
        thread.daemon = True
        thread.start()


def answer(connection, path, room):
    try:
        Client(connection, path).serve()
    except Exception:  # a client that is gone, or talks nonsense, is no concern of others
        pass
    finally:
        connection.close()
        room.release()


class Client:
    def __init__(self, connection, path):
        self.connection, self.path, self.unread = connection, path, b""

    def request(self):
        until = time.time() + PATIENCE
        while b"\n" not in self.unread:
            if len(self.unread) >= LONGEST_REQUEST or time.time() >= until:
                raise ValueError("no request")
            if select.select([self.connection], [], [], max(0, until - time.time()))[0]:
                data = self.connection.recv(LONGEST_REQUEST)
                if not data:
                    raise ValueError("gone")
                self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode("utf-8").strip()

    def serve(self):
        while True:
            request = self.request()
            if request.startswith("v:"):
                self.connection.sendall(VERSION)
            elif request.startswith("f:"):
                self.forget(self.place(request[2:]))
            else:
                # Zuul before 6.3 sends the id alone.
                return self.stream(self.place(request[2:] if request.startswith("s:") else request))

    def place(self, log_id):
        return self.path.format(log_uuid=os.path.basename(log_id))

    def forget(self, path):
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)
        except OSError:
            pass

    def stream(self, path):
        while True:
            try:
                file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
            except OSError:
                self.connection.sendall(b"[Zuul] Log not found\n")
                time.sleep(PAUSE)
                continue
            try:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not self.follow(file, path):
                    return
            finally:
                file.close()

    def follow(self, file, path):
        """All there is and will be; whether to look again, because another file is in its place."""
        inode, size = os.fstat(file.fileno()).st_ino, 0
        while True:
            chunk = file.read(1 << 16)
            if chunk:
                size += len(chunk)
                self.connection.sendall(chunk)
                continue
            if select.select([self.connection], [], [], PAUSE)[0] and not self.connection.recv(LONGEST_REQUEST):
                return False
            try:
                found = os.stat(path)
            except OSError:
                return True
            if found.st_ino != inode or found.st_size < size:
                return True


def listener(port):
    """The process of this user that listens on a port."""
    inodes = set()
    for table in ("/proc/net/tcp6", "/proc/net/tcp"):
        if os.path.exists(table):
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
            inodes.update("socket:[%s]" % row[9] for row in rows
                          if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port)
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        folder = "/proc/%s/fd" % pid
        try:
            for name in os.listdir(folder):
                if os.readlink(os.path.join(folder, name)) in inodes:
                    return int(pid)
        except OSError:
            pass
    return None


def logs(path):
    """The logs of commands; other files of such names are somebody else's."""
    before, after = path.split("{log_uuid}", 1) if "{log_uuid}" in path else (path, "")
    shape = re.compile(re.escape(before) + "[0-9a-f-]{32,}[^/]*" + re.escape(after) + "$")
    return [name for name in glob.glob(path.format(log_uuid="*")) if shape.match(name)]


def stop(module, path, port):
    pid = listener(port)
    if pid is None:
        module.fail_json(msg="no zuul_console of this user listens on port %d" % port)
    try:
        os.kill(pid, signal.SIGTERM)
        for name in logs(path):
            os.unlink(name)
    except OSError as error:
        module.fail_json(msg="zuul_console could not be stopped whole: %s" % error)
    module.exit_json(changed=True)


def main():
    module = AnsibleModule(argument_spec=dict(
        path=dict(default=LOG_FILE),
        port=dict(default=PORT, type="int"),
        state=dict(default="present", choices=["absent", "present"]),
    ))
    path, port = module.params["path"], module.params["port"]
    if module.params["state"] == "absent":
        stop(module, path, port)
    try:
        server = listen(port)
    except (IOError, OSError) as error:
        module.fail_json(msg="zuul_console cannot listen on port %d: %s" % (port, error))
    # Where the port is taken one runs already, as it may after an earlier build on this node.
    if server is not None and stay(server):
        serve(server, path)
        sys.exit(0)
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
