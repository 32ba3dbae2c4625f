# SPDX-License-Identifier: Apache-2.0
"""Follows what `command` and `shell` write while they run.

Ansible runs each task on each host in a process of its own; there, around the module `command`, a thread reads the log
that the module writes (see library/command.py): on this host a pipe, on a node what its zuul_console serves. So each
item of a loop, each retry and each delegated task has its own log, and a task that is skipped has none. What could not
be followed is shown when the module has ended. Zuul: nothing is followed for `async`, `no_log` and where
`zuul_console_disabled` is set.
"""

import inspect
import os
import re
import select
import socket
import tempfile
import threading
import time

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from gatelog_console import Lines

LOG_FILE = "/tmp/console-%s.log"
MODULES = {"command", "ansible.legacy.command", "ansible.builtin.command"}
ACTIONS = {prefix + name for prefix in ("", "ansible.legacy.", "ansible.builtin.") for name in ("command", "shell")}
# Seconds: between two tries to connect; for a log to appear after its task has ended; for its rest to come.
PAUSE, GRACE, REST = 0.3, 10, 30
# A module that died without a word has left no more than what comes within this time.
SILENCE = 1


def console_port():
    """The port of a node's console. Asked for in each run: this module may have been loaded before. Zuul:
    `log_console_port`."""
    return int(os.environ.get("GATELOG_CONSOLE_PORT") or 19885)


def install(console):
    """From here on every task of this playbook is followed. Ansible has no other place that serves `command`, `shell`
    and their long names alike. Zuul: patches Ansible's plugin loader."""
    original = ActionBase._execute_module
    signature = inspect.signature(original)

    def execute(action, *arguments, **options):
        given = signature.bind(action, *arguments, **options).arguments
        name = given.get("module_name") or action._task.action
        if name.rsplit(".", 1)[-1] == "zuul_console" and "port" not in action._task.args and is_local(action):
            return {"changed": False, "msg": "this node needs none"}
        if name not in MODULES or action._task.action not in ACTIONS or not is_ours(action):
            return original(action, *arguments, **options)
        module_args = given.get("module_args")
        module_args = dict(action._task.args if module_args is None else module_args)
        module_args["zuul_ansible_split_streams"] = console.split
        reader = None
        if not (action._task.no_log or action._task.check_mode or given.get("wrap_async")):
            reader = reader_for(console, action, given.get("task_vars") or {})
        given = dict(given, module_args=module_args)
        if reader is None:
            return original(**as_options(given))
        module_args.update(reader.arguments())
        return followed(reader, lambda: original(**as_options(given)))

    ActionBase._execute_module = execute


def as_options(given):
    """The arguments by name, those that came as `**options` among them."""
    options = dict(given)
    options.update(options.pop("kwargs", {}))
    return options


def is_local(action):
    return action._connection.transport.rsplit(".", 1)[-1] == "local"


def is_ours(action):
    """A role may bring a `command` of its own, which knows nothing of logs."""
    path = action._shared_loader_obj.module_loader.find_plugin("ansible.legacy.command")
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "library")
    return bool(path) and os.path.dirname(os.path.abspath(path)) == library


def followed(reader, run):
    reader.start()
    result = None
    try:
        result = run()
        return result
    finally:
        size = None
        if isinstance(result, dict):
            size = result.pop("zuul_log_size", None)
        reader.finish(size)
        if isinstance(result, dict) and "zuul_log_id" in result:
            reader.show_rest(result)


COUNT = 0


def reader_for(console, action, variables):
    """Who follows this run of the module; None where nobody can."""
    global COUNT
    disabled = action._templar.template(variables.get("zuul_console_disabled", False))
    if boolean(disabled, strict=False):
        return None
    name = str(variables.get("inventory_hostname", "localhost"))
    delegate = action._task.delegate_to
    shown = "%s -> %s" % (name, delegate) if delegate and delegate != name else name
    COUNT += 1
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64]
    log_id = "%s-%s-%s-%d.%d" % (console.id, action._task._uuid, safe, os.getpid(), COUNT)
    connection = action._connection
    kind = connection.transport.rsplit(".", 1)[-1]
    if kind == "local":
        return LocalReader.open(console, shown, log_id)
    if kind in ("ssh", "paramiko", "paramiko_ssh"):
        return RemoteReader(console, shown, log_id, (address(connection), console_port()))
    if kind == "kubectl":
        resource = variables.get("zuul", {}).get("resources", {}).get(str(delegate or name), {})
        port = resource.get("stream_port1")
        return RemoteReader(console, shown, log_id, ("127.0.0.1", int(port))) if port else None
    return None


def address(connection):
    try:
        host = connection.get_option("host")
    except Exception:  # not every plugin has it
        host = None
    return host or connection._play_context.remote_addr


class Reader(threading.Thread):
    def __init__(self, console, host, log_id):
        super().__init__(daemon=True)
        self.console, self.host, self.log_id = console, host, log_id
        self.lines = Lines(console, host, stamped=True)
        self.received = 0
        # When the module ended, and how much it says that it wrote.
        self.over, self.size = None, None
        self.complete = False

    def arguments(self):
        """What the module is told."""
        return {"zuul_log_id": self.log_id}

    def take(self, data):
        self.received += len(data)
        self.lines.feed(data)

    def finish(self, size):
        # Less than nothing: not all could be written.
        self.size, self.over = size if size is None or size >= 0 else None, time.monotonic()
        seen, since = self.received, time.monotonic()
        while self.is_alive() and time.monotonic() - since < REST:
            self.join(1)
            if self.received != seen:
                seen, since = self.received, time.monotonic()
        self.lines.finish()
        if size is not None and size != self.received:
            self.complete = False
        self.close()

    def close(self):
        pass

    def show_rest(self, result):
        """What of the result was not followed."""
        if self.complete or self.size == 0:
            return
        texts = [text for text in (result.get("stdout"), result.get("stderr")) if text]
        if self.lines.shown and self.console.split:
            self.console.say("[Zuul] Log stream ended early: the whole output is in job-output.json", self.host)
            return
        for text in texts:
            rest = text.split("\n")[self.lines.shown:]
            if rest:
                self.console.output("\n".join(rest) + "\n", self.host)


class LocalReader(Reader):
    """Reads a named pipe: what the command writes faster than the console takes waits in the command."""

    @classmethod
    def open(cls, console, host, log_id):
        path = LOG_FILE % log_id
        try:
            os.mkfifo(path, 0o600)
            # The command may run as another user.
            os.chmod(path, 0o622)
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        reader = cls(console, host, log_id)
        reader.path, reader.file = path, file
        return reader

    def run(self):
        poll = select.poll()
        poll.register(self.file, select.POLLIN)
        try:
            while True:
                # No events at all: nobody has opened it for writing yet, or nobody has written.
                over = self.over
                if not poll.poll(0 if over else 100):
                    if over and (self.size is not None or time.monotonic() > over + SILENCE):
                        break
                    time.sleep(0.02 if over else 0)
                    continue
                data = os.read(self.file, 1 << 16)
                if not data:
                    break
                self.take(data)
        finally:
            # Else a command would wait for a reader for ever.
            os.close(self.file)
        self.complete = True

    def close(self):
        try:
            os.unlink(self.path)
        except OSError:
            pass


class RemoteReader(Reader):
    """Reads from the zuul_console of a node. Zuul's protocol; see library/zuul_console.py."""

    def __init__(self, console, host, log_id, address):
        super().__init__(console, host, log_id)
        self.address, self.connected = address, False

    def arguments(self):
        return {"zuul_log_id": self.log_id, "zuul_log_port": console_port()}

    def run(self):
        connection = self.connect()
        if connection is None:
            return
        try:
            with connection:
                connection.sendall(b"v:1\n")
                version = connection.recv(64).strip()
                if not version.isdigit():
                    return
                connection.sendall(b"s:" + self.log_id.encode("ascii") + b"\n")
                self.read(connection)
        except OSError:
            self.console.say("[Zuul] Lost log stream connection to [%s:%s]" % self.address, self.host)

    def connect(self):
        """A connection; None if the task is over before there is one."""
        while True:
            try:
                connection = socket.create_connection(self.address, GRACE)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self.connected = True
                return connection
            except OSError:
                if self.over:
                    return None
                self.hint()
                time.sleep(PAUSE)

    def hint(self):
        """Zuul's words for a node where nothing answers; once for each node and playbook."""
        name = "gatelog-%s-%s" % (self.console.id, re.sub(r"[^A-Za-z0-9_.-]", "_", str(self.address[0])))
        try:
            os.close(os.open(os.path.join(tempfile.gettempdir(), name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return
        self.console.say("[%s] Waiting on logger" % self.host)

    def read(self, connection):
        connection.settimeout(PAUSE)
        head, quiet = b"", time.monotonic()
        while not self.is_complete():
            over = self.over
            if over and time.monotonic() > max(over, quiet) + self.patience():
                return
            try:
                data = connection.recv(1 << 16)
            except socket.timeout:
                continue
            if not data:
                return
            if not self.received:
                head = self.without_not_found(head + data)
                data, head = (head, b"") if not self.may_be_not_found(head) else (b"", head)
            if data:
                quiet = time.monotonic()
                self.take(data)
        self.complete = True

    NOT_FOUND = b"[Zuul] Log not found\n"

    def without_not_found(self, data):
        while data.startswith(self.NOT_FOUND):
            data = data[len(self.NOT_FOUND):]
        return data

    def may_be_not_found(self, data):
        return self.NOT_FOUND.startswith(data)

    def is_complete(self):
        return self.size is not None and self.received >= self.size

    def patience(self):
        if self.size is None:
            return SILENCE
        return REST if self.received else GRACE

    def close(self):
        """Tells the node that the log is read."""
        if not self.connected:
            return
        try:
            with socket.create_connection(self.address, GRACE) as connection:
                connection.sendall(b"f:" + self.log_id.encode("ascii") + b"\n")
        except OSError:
            pass
