#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""command: ansible-core's module of that name, which also tells each line of output while the command runs.

Takes the place of ansible-core's module, so that `shell` is served too. All that starts and reads the process is
AnsibleModule.run_command of the node's own ansible; this module looks over its shoulder. With `zuul_log_id` each line
goes with its time to /tmp/console-<id>.log. Zuul: the same arguments, file and form. Runs on Python 2.7 too, as
ansible-core's own does on nodes.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import datetime
import errno
import fcntl
import glob
import os
import shlex
import socket
import stat

from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_native, to_text

LOG_FILE = "/tmp/console-{log_uuid}.log"


class Log:
    """The file that a console is read from. Whatever is wrong with it, the command goes on."""

    def __init__(self, log_id, port):
        self.port = port
        self.path = LOG_FILE.format(log_uuid=os.path.basename(log_id))
        self.file = None
        self.begun = False
        self.failed = False
        self.written = 0
        self.partial = {}

    def open(self):
        self.begun = True
        try:
            self.file = self.descriptor()
        except (IOError, OSError, socket.error):
            self.failed = True

    def descriptor(self):
        if self.port:
            # Nobody would read the log, or ever take it away, where no zuul_console is.
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        # Not blocking: a pipe that nobody reads must not hold up the command.
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self.path, flags)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            file = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        found = os.fstat(file)
        if not stat.S_ISFIFO(found.st_mode) and found.st_uid != os.geteuid():
            os.close(file)
            raise OSError(errno.EPERM, "somebody else's file")
        fcntl.fcntl(file, fcntl.F_SETFD, fcntl.fcntl(file, fcntl.F_GETFD) | fcntl.FD_CLOEXEC)
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        return file

    def feed(self, stream, data):
        """Takes output as it comes and writes the lines that are complete."""
        if self.file is None:
            return
        pieces = self.partial.setdefault(stream, [])
        end = data.rfind(b"\n") + 1
        if end:
            pieces.append(data[:end])
            self.lines(b"".join(pieces)[:-1])
            del pieces[:]
        if data[end:]:
            pieces.append(data[end:])

    def lines(self, text):
        stamp = datetime.datetime.utcnow().strftime("%Y-%m-%d %H:%M:%S.%f").encode("ascii") + b" | "
        self.write(b"".join(stamp + line + b"\n" for line in text.split(b"\n")))

    def write(self, block):
        view = memoryview(block)
        try:
            while len(view):
                count = os.write(self.file, view)
                self.written += count
                view = view[count:]
        except (IOError, OSError):
            # Nobody reads any more, or the disk is full: the result has it all.
            os.close(self.file)
            self.file = None
            self.failed = True

    def finish(self, code):
        """The last line; how many bytes were written, -1 if that is not all."""
        if self.file is not None:
            for pieces in self.partial.values():
                if pieces and self.file is not None:
                    self.lines(b"".join(pieces))
        if self.file is not None:
            self.lines(("[Zuul] Task exit code: %s" % code).encode("utf-8"))
        if self.file is not None:
            os.close(self.file)
            self.file = None
        return -1 if self.failed else self.written


class Pieces:
    """Bytes that grow. run_command adds piece to piece with `+=`, which for bytes copies all there is each time."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def __radd__(self, before):
        return Pieces(before, *self.pieces)

    def __iadd__(self, more):
        self.pieces.extend(more.pieces)
        return self

    def __bytes__(self):
        return b"".join(self.pieces)


class Tee:
    """One stream of a process; who reads it has it logged."""

    def __init__(self, file, log, name):
        self.file, self.log, self.name = file, log, name

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read(self, *count):
        data = self.file.read(*count)
        if not data:
            return data
        if self.log is not None:
            self.log.feed(self.name, data)
        return Pieces(data)


class Subprocess:
    """`subprocess` as run_command sees it: both streams in one where they are not to be kept apart."""

    def __init__(self, real, log, split):
        self.real, self.log, self.split = real, log, split

    def __getattr__(self, name):
        return getattr(self.real, name)

    def Popen(self, *arguments, **options):
        if not self.split:
            options["stderr"] = self.real.STDOUT
        process = self.real.Popen(*arguments, **options)
        if not self.split:
            # run_command wants two streams; the second one is at its end.
            reader, writer = os.pipe()
            os.close(writer)
            process.stderr = os.fdopen(reader, "rb")
        if self.log is not None:
            self.log.open()
        process.stdout = Tee(process.stdout, self.log, "stdout")
        process.stderr = Tee(process.stderr, self.log, "stderr")
        return process


class Module(AnsibleModule):
    """Ends the log whenever and however the module ends, and says how long it is."""

    console = None

    def ended(self, result):
        if self.console is not None:
            # Nothing where the command was not started.
            size = self.console.finish(result.get("rc")) if self.console.begun else 0
            result.update(zuul_log_id=self.params["zuul_log_id"], zuul_log_size=size)

    def exit_json(self, **result):
        self.ended(result)
        super(Module, self).exit_json(**result)

    def fail_json(self, msg, **result):
        self.ended(result)
        super(Module, self).fail_json(msg, **result)


def arguments():
    return dict(
        _raw_params=dict(),
        _uses_shell=dict(type="bool", default=False),
        argv=dict(type="list", elements="str"),
        chdir=dict(type="path"),
        executable=dict(),
        expand_argument_vars=dict(type="bool", default=True),
        creates=dict(type="path"),
        removes=dict(type="path"),
        stdin=dict(required=False),
        stdin_add_newline=dict(type="bool", default=True),
        strip_empty_ends=dict(type="bool", default=True),
        zuul_log_id=dict(type="str"),
        zuul_log_port=dict(type="int"),
        zuul_ansible_split_streams=dict(type="bool", default=True),
    )


def wanted(module, result):
    """The words to run, once the arguments make sense and the directory is there."""
    params, words = module.params, module.params["_raw_params"]
    given = bool(words and words.strip())
    if not given and not params["argv"]:
        module.fail_json(**dict(result, rc=256, msg="no command given"))
    if words and params["argv"]:
        module.fail_json(**dict(result, rc=256, msg="only command or argv can be given, not both"))
    if given and not params["_uses_shell"]:
        words = shlex.split(words)
    words = words if given else params["argv"]
    if isinstance(words, list):
        words = [to_native(word, errors="surrogate_or_strict", nonstring="simplerepr") for word in words]
    result["cmd"] = words
    if params["chdir"]:
        try:
            os.chdir(to_bytes(params["chdir"], errors="surrogate_or_strict"))
        except (IOError, OSError) as error:
            told = "Unable to change directory before execution: %s" % to_text(error)
            module.fail_json(**dict(result, msg=told))
    return words


def needless(module, result):
    """Ends the module where `creates` or `removes` say that there is nothing to do."""
    word = "Would" if module.check_mode else "Did"
    for name, needless_if, state in (("creates", True, "exists"), ("removes", False, "does not exist")):
        path = module.params[name]
        if path and bool(glob.glob(path)) == needless_if:
            message = "%s not run command since '%s' %s" % (word, path, state)
            skipped = "skipped, since %s %s" % (path, state)
            module.exit_json(**dict(result, rc=0, msg=message, stdout=skipped))


def would_run(module, result):
    if module.params["creates"] is None and module.params["removes"] is None:
        # Skipped and changed exclude each other.
        result.update(skipped=True, changed=False)
    result.update(rc=0, msg="Command would have run if not in check mode")


def run(module, words, result):
    params = module.params
    shell, executable = params["_uses_shell"], params["executable"]
    # run_command itself is ansible's: what a command sees and how it is started is as without this module.
    basic.subprocess = Subprocess(basic.subprocess, module.console, params["zuul_ansible_split_streams"])
    options = dict(executable=executable if shell else None, use_unsafe_shell=shell, encoding=None,
                   data=params["stdin"], binary_data=not params["stdin_add_newline"])
    if not params["expand_argument_vars"]:
        options["expand_user_and_vars"] = False
    start = datetime.datetime.now()
    code, out, errors = module.run_command(words, **options)
    end = datetime.datetime.now()
    times = dict(start=to_text(start), end=to_text(end), delta=to_text(end - start))
    out, errors = (text.__bytes__() if isinstance(text, Pieces) else text for text in (out, errors))
    result.update(times, rc=code, stdout=out, stderr=errors)


def main():
    module = Module(argument_spec=arguments(), supports_check_mode=True)
    if module.params["zuul_log_id"]:
        module.console = Log(module.params["zuul_log_id"], module.params["zuul_log_port"])
    result = dict(changed=False, stdout="", stderr="", rc=None, cmd=None, start=None, end=None, delta=None, msg="")
    if module.params["executable"] and not module.params["_uses_shell"]:
        module.warn("As of Ansible 2.4, the parameter 'executable' is no longer supported with the 'command' module. "
                    "Not using '%s'." % module.params["executable"])
    words = wanted(module, result)
    needless(module, result)
    result["changed"] = True
    if module.check_mode:
        would_run(module, result)
    else:
        run(module, words, result)
    if module.params["strip_empty_ends"]:
        for name in ("stdout", "stderr"):
            result[name] = to_text(result[name]).rstrip("\r\n")
    if result["rc"] != 0:
        module.fail_json(**dict(result, msg="non-zero return code"))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
