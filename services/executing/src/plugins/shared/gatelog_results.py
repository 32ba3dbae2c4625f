# SPDX-License-Identifier: Apache-2.0
"""The results of one playbook for job-output.json, told to the executor as they come.

One JSON document a line, so that what is known is there also when the playbook is killed: `play`, `task`, `result`,
`failing_task`, `unreachable`, and at the end `stats`. The executor puts them together.
"""

import json
import os

# One string of a result is kept up to this many characters, one list up to this many items; what is left out is told.
LONGEST = 1 << 20
MOST = 20000


def plain(value, depth=0):
    """The value as something JSON can hold, without Ansible's own markers."""
    if depth > 50:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items() if not str(key).startswith("_ansible")}
    if isinstance(value, (list, tuple, set)):
        return [plain(item, depth + 1) for item in shortened(list(value), MOST, "items")]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return shortened(str(value), LONGEST, "characters")


def shortened(value, most, what):
    """Begin and end of what is too long, and between them how much is missing."""
    if len(value) <= most:
        return value
    half = most // 2
    told = "[%d %s were left out here]" % (len(value) - 2 * half, what)
    if isinstance(value, str):
        return value[:half] + "\n" + told + "\n" + value[-half:]
    return value[:half] + [told] + value[-half:]


class Results:
    def __init__(self, console):
        self.console = console
        # What is left for results; an eighth stays for what is around them.
        self.room = int(os.environ.get("GATELOG_JSON_BYTES") or 64 << 20) // 8 * 7
        self.frame = self.room // 8

    def write(self, event):
        """Anything but a result; left out where there is no end of plays and tasks."""
        line = self.line(event)
        if len(line) <= self.frame:
            self.frame -= len(line)
            self.append(line)

    def result(self, value, **around):
        line = self.line({"result": dict(around, value=value)})
        if len(line) > self.room:
            kept = ("action", "changed", "failed", "skipped", "unreachable", "rc", "delta")
            short = {key: value[key] for key in kept if key in value}
            short["msg"] = "%d bytes of this result were left out: the playbook's results are too large" % len(line)
            return self.write({"result": dict(around, value=short)})
        self.room -= len(line)
        self.append(line)

    def end(self, event):
        self.append(self.line(event))

    def line(self, event):
        return (json.dumps(event, ensure_ascii=False) + "\n").encode("utf-8", "replace")

    def append(self, line):
        self.console.result(line)
