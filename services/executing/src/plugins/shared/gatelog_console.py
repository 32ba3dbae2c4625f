# SPDX-License-Identifier: Apache-2.0
"""The console as the processes of one ansible-playbook write it: whole lines, one process at a time.

A line is `<UTC time> | <host> | <text>`. It goes to the executor by a channel that only the processes of this playbook hold
which run Ansible, not what they start. The first byte of a message says what follows; the executor takes words and results
from the playbook's main process alone. What is written to standard output instead is plain text to it.
"""

import datetime
import fcntl
import io
import os
import sys
import tempfile
import threading
import uuid

# Lines with their time; text without; words for the executor; parts of the results.
SAID, PLAIN, MARK, RESULT = b"s", b"p", b"m", b"r"
# Lines of a command's output: before each, how many bytes stand before its text, `+` and how many are missing at its end if
# any are. The executor holds its text against the job's failure-output.
OUTPUT = b"o"
# Why the playbook can only fail.
EARLY = b"early failure: "
# A host cannot be reached: what fails from here on says nothing.
UNREACHABLE = b"unreachable\n"
# The most bytes of one message.
LONGEST_MESSAGE = 32 << 10
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
        self.channel = sys.modules["gatelog_held"].channel
        self.id = uuid.uuid4().hex
        self.split = os.environ.get("GATELOG_SPLIT_STREAMS") == "1"
        # Without a name, so that nobody else has it; all processes of this playbook inherit it.
        self.lock_file = tempfile.TemporaryFile()
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self.forked)

    def forked(self):
        # Another thread of the parent may have held it.
        self.lock = threading.Lock()

    def write(self, kind, block):
        """Bytes of whole lines, not mixed with what other processes of this playbook write."""
        view = memoryview(block)
        with self.lock:
            fcntl.lockf(self.lock_file, fcntl.LOCK_EX)
            try:
                while view:
                    os.writev(self.channel, [kind, view[:LONGEST_MESSAGE]])
                    view = view[LONGEST_MESSAGE:]
            finally:
                fcntl.lockf(self.lock_file, fcntl.LOCK_UN)

    def say(self, text, host=None):
        before = stamp() + " | " + (host + " | " if host else "")
        lines = str(text).splitlines() or [""]
        self.write(SAID, "".join(before + line + "\n" for line in lines).encode("utf-8", "replace"))

    def output(self, text, host):
        """A command's output, all at once. Only the end of a line ends a line."""
        lines = Lines(self, host)
        lines.feed(text.encode("utf-8", "replace"))
        lines.finish()

    def failure(self, number):
        """The result of a failed task comes next: the executor remembers its line."""
        self.write(MARK, b"failure %d\n" % number)

    def will_fail(self, why):
        self.write(MARK, EARLY + " ".join(why.split())[:500].encode("utf-8", "replace") + b"\n")

    def unreachable(self):
        self.write(MARK, UNREACHABLE)

    def result(self, part):
        self.write(RESULT, part)

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
            self.console.write(PLAIN, text.encode("utf-8", "replace"))


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
            self.console.write(OUTPUT, block)

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
        told = str(len(before)).encode("ascii")
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
            self.console.write(OUTPUT, self.ended(stamp().encode("ascii")))
