# SPDX-License-Identifier: Apache-2.0
"""The console as the processes of one ansible-playbook write it: whole lines, one process at a time.

Each line is `<UTC time> | <host> | <text>` and goes to standard output, where the executor takes it. A line that begins
with one of the words below is for the executor; it shows what follows of an output, and nothing of the others.
"""

import datetime
import fcntl
import io
import os
import sys
import tempfile
import threading
import uuid

# A line of a command's output: how many bytes stand before its text, `+` and how many are missing at its end if any are,
# and the line. The executor holds its text against the job's failure-output.
OUTPUT = b"gatelog: output "
# Why the playbook can only fail.
EARLY = b"gatelog: early failure: "
# A host cannot be reached: what fails from here on says nothing.
UNREACHABLE = b"gatelog: unreachable\n"
# One line is kept up to this many bytes; of a longer one the rest is counted.
LONGEST_LINE = 1 << 20
STAMP = len("2026-11-21 10:20:06.123456")


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)


def stamp():
    return now().isoformat(sep=" ", timespec="microseconds")


def is_stamp(text):
    shape = b"0000-00-00 00:00:00.000000"
    return len(text) == STAMP and all(
        48 <= byte <= 57 if wanted == 48 else byte == wanted for byte, wanted in zip(text, shape))


class Console:
    def __init__(self):
        # Newer Ansible takes a worker's standard output away; this one stays.
        self.out = os.dup(1)
        self.id = uuid.uuid4().hex
        self.split = os.environ.get("GATELOG_SPLIT_STREAMS") == "1"
        # Without a name, so that nobody else has it; all processes of this playbook inherit it.
        self.lock_file = tempfile.TemporaryFile()
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self.forked)

    def forked(self):
        # Another thread of the parent may have held it.
        self.lock = threading.Lock()

    def write(self, block):
        """Bytes of whole lines, not mixed with what other processes of this playbook write."""
        view = memoryview(block)
        with self.lock:
            fcntl.lockf(self.lock_file, fcntl.LOCK_EX)
            try:
                while view:
                    view = view[os.write(self.out, view):]
            finally:
                fcntl.lockf(self.lock_file, fcntl.LOCK_UN)

    def say(self, text, host=None):
        before = stamp() + " | " + (host + " | " if host else "")
        lines = str(text).splitlines() or [""]
        self.write("".join(before + line + "\n" for line in lines).encode("utf-8", "replace"))

    def output(self, text, host):
        """A command's output, all at once. Only the end of a line ends a line."""
        lines = Lines(self, host)
        lines.feed(text.encode("utf-8", "replace"))
        lines.finish()

    def failure(self, number):
        """The result of a failed task comes next: the executor remembers its line."""
        self.write(b"gatelog: failure %d\n" % number)

    def will_fail(self, why):
        self.write(EARLY + " ".join(why.split())[:500].encode("utf-8", "replace") + b"\n")

    def unreachable(self):
        self.write(UNREACHABLE)

    def share(self):
        """What Ansible itself prints in this process waits its turn too."""
        sys.stdout, sys.stderr = Shared(self, sys.stdout), Shared(self, sys.stderr)


class Shared(io.TextIOBase):
    """A text stream that writes to the console when it is flushed."""

    def __init__(self, console, real):
        super().__init__()
        self.console, self.real, self.text = console, real, ""

    encoding = property(lambda self: self.real.encoding)
    errors = property(lambda self: self.real.errors)

    def fileno(self):
        return self.real.fileno()

    def isatty(self):
        return False

    def writable(self):
        return True

    def write(self, text):
        self.text += text
        if len(self.text) >= 1 << 16:
            self.flush()
        return len(text)

    def flush(self):
        if self.text:
            text, self.text = self.text, ""
            self.console.write(text.encode("utf-8", "replace"))


class Lines:
    """Cuts a command's output into lines for the console.

    `stamped`: each line brings its own time, and the last one is the module's word that the command ended.
    """

    END = b"[Zuul] Task exit code: "

    def __init__(self, console, host, stamped=False):
        self.console, self.stamped = console, stamped
        self.host = b" | " + host.encode("utf-8", "replace") + b" | "
        self.line, self.missing, self.held = bytearray(), 0, None
        # How many lines were shown.
        self.shown = 0

    def feed(self, data):
        out, start = [], 0
        # One moment for all that came together.
        moment = None if self.stamped else stamp().encode("ascii")
        while True:
            end = data.find(b"\n", start)
            if end < 0:
                break
            self.take(data[start:end])
            out.append(self.ended(moment))
            start = end + 1
        self.take(data[start:])
        block = b"".join(out)
        if block:
            self.console.write(block)

    def take(self, piece):
        room = max(0, LONGEST_LINE - len(self.line))
        self.line += piece[:room]
        self.missing += max(0, len(piece) - room)

    def ended(self, moment):
        """The line that is complete, as it goes to the executor, and one that was held back before it."""
        line, missing = bytes(self.line), self.missing
        self.line, self.missing = bytearray(), 0
        if self.stamped:
            moment, bar, text = line[:STAMP], line[STAMP:STAMP + 3], line[STAMP + 3:]
            if bar == b" | " and is_stamp(moment):
                line = text
            else:
                moment = stamp().encode("ascii")
        before = moment + self.host
        told = OUTPUT + str(len(before)).encode("ascii")
        if missing:
            told += b"+" + str(missing).encode("ascii")
        told += b": " + before + line + b"\n"
        held, self.held = self.held, None
        self.shown += held is not None
        if self.stamped and line.startswith(self.END):
            # The command itself may have written this; then there is more to come.
            self.held = told
            return held or b""
        self.shown += 1
        return (held or b"") + told

    def finish(self):
        if self.line or self.missing:
            self.console.write(self.ended(stamp().encode("ascii")))
