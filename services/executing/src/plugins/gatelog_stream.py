# SPDX-License-Identifier: Apache-2.0
"""gatelog's console: one line of text for everything that happens, as it happens.

Each line is `<UTC time> | <host> | <text>` and goes to standard output, where the executor takes
it. At the end of a playbook one JSON document with all results is written to the file named by
GATELOG_PLAYBOOK_JSON; the executor puts these together into job-output.json.

As soon as it is certain that the playbook fails, one line of another form tells the executor so;
it is not shown. GATELOG_EARLY_FAILURE, where it is set, holds the job's `failure-output`: a list of
pairs, a regular expression and whether it is negated.
"""

import datetime
import json
import os
import re

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: gatelog_stream
type: stdout
short_description: gatelog's console
description: Writes one line of text for everything that happens, as it happens.
extends_documentation_fragment:
  - default_callback
"""

# Keys of a result that are shown as lines of their own, or say nothing to a reader.
QUIET = {
    "changed", "failed", "invocation", "stdout", "stdout_lines", "stderr", "stderr_lines", "cmd", "start", "end",
    "delta", "rc", "warnings", "deprecations", "exception", "skip_reason", "false_condition", "skipped", "results",
    "ansible_facts", "ansible_loop_var", "ansible_index_var", "diff", "attempts", "unreachable", "finished",
}
COMMANDS = {"command", "shell", "raw", "script", "win_command", "win_shell"}
# What begins with this is for the executor.
EARLY = "gatelog: early failure: "
# One value of a result is kept up to this many characters; a console is no place for more.
LONGEST = 1 << 20


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)


def stamp(moment):
    return moment.isoformat(sep=" ", timespec="microseconds")


def iso(moment):
    return moment.isoformat(timespec="microseconds") + "Z"


def part(thing, name):
    """The named part of a result object; newer Ansible has no underscore before it."""
    if hasattr(thing, name):
        return getattr(thing, name)
    return getattr(thing, "_" + name)


def plain(value, depth=0):
    """The value as something JSON can hold, without Ansible's own markers."""
    if depth > 50:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items() if not str(key).startswith("_ansible")}
    if isinstance(value, (list, tuple, set)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    text = str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "gatelog_stream"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.plays = []
        self.failures = []
        self.unreachable = set()
        # None: nobody wants to know, or it was told already.
        self.early = self.patterns()

    # -- writing -------------------------------------------------------------------------------

    def say(self, text, host=None):
        before = stamp(now()) + " | " + (host + " | " if host else "")
        lines = str(text).splitlines() or [""]
        block = "".join(before + line + "\n" for line in lines)
        os.write(1, block.encode("utf-8", "replace"))

    # -- early failure -------------------------------------------------------------------------

    def patterns(self):
        text = os.environ.get("GATELOG_EARLY_FAILURE")
        if not text:
            return None
        found = []
        for expression, negate in json.loads(text):
            try:
                found.append((re.compile(expression), negate))
            except re.error as error:
                self.say("WARNING: failure-output %r is left out: %s" % (expression, error))
        return found

    def will_fail(self, why):
        if self.early is None:
            return
        self.early = None
        os.write(1, (EARLY + " ".join(why.split())[:500] + "\n").encode("utf-8", "replace"))

    def look(self, text, host):
        for line in text.splitlines() if self.early else ():
            for pattern, negate in self.early:
                if bool(pattern.match(line)) != negate:
                    said = 'a line of %s matches failure-output "%s"' % (host, pattern.pattern)
                    self.say("Early failure: " + said, host)
                    self.will_fail(said)
                    return

    def name_of(self, result):
        host = part(result, "host").get_name()
        delegated = part(result, "result").get("_ansible_delegated_vars") or {}
        target = delegated.get("ansible_delegated_host") if isinstance(delegated, dict) else None
        return host + " -> " + str(target) if target and str(target) != host else host

    # -- plays and tasks -----------------------------------------------------------------------

    def close_task(self):
        if self.plays and self.plays[-1]["tasks"]:
            self.plays[-1]["tasks"][-1]["task"]["duration"].setdefault("end", iso(now()))

    def v2_playbook_on_play_start(self, play):
        self.close_task()
        if self.plays:
            self.plays[-1]["play"]["duration"].setdefault("end", iso(now()))
        name = play.get_name().strip()
        self.plays.append({
            "play": {"name": name, "id": str(play._uuid), "duration": {"start": iso(now())}},
            "tasks": [],
        })
        self.say("")
        self.say("PLAY [%s]" % name)

    def task_start(self, task, word):
        self.close_task()
        name = task.get_name().strip()
        entry = {
            "task": {"name": name, "id": str(task._uuid), "duration": {"start": iso(now())}},
            "hosts": {},
        }
        role = getattr(task, "_role", None)
        if role is not None:
            entry["role"] = {"name": role.get_name(), "id": str(role._uuid), "path": str(role._role_path)}
        if self.plays:
            self.plays[-1]["tasks"].append(entry)
        self.say("")
        self.say("%s [%s]" % (word, name))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.task_start(task, "TASK")

    def v2_playbook_on_cleanup_task_start(self, task):
        self.task_start(task, "CLEANUP TASK")

    def v2_playbook_on_handler_task_start(self, task):
        self.task_start(task, "RUNNING HANDLER")

    def v2_playbook_on_include(self, included_file):
        self.say("included: %s" % included_file._filename)

    def v2_playbook_on_no_hosts_matched(self):
        self.say("skipping: no hosts matched")

    def v2_playbook_on_no_hosts_remaining(self):
        self.say("NO MORE HOSTS LEFT")

    # -- results -------------------------------------------------------------------------------

    def record(self, result, **more):
        value = plain(part(result, "result"))
        task = part(result, "task")
        value.update(more)
        value["action"] = str(task.action)
        # What was given to a task may hold what a person must not see; what it did may not.
        value.pop("invocation", None)
        if not self.plays:
            return value
        for entry in reversed(self.plays[-1]["tasks"]):
            if entry["task"]["id"] == str(task._uuid):
                entry["hosts"][part(result, "host").get_name()] = value
                break
        return value

    def output(self, value, host):
        for key in ("stdout", "stderr"):
            text = value.get(key)
            if text:
                self.say(text, host)
                if key == "stdout":
                    self.look(str(text), host)

    def details(self, value, host):
        if value.get("msg"):
            message = value["msg"]
            self.say(message if isinstance(message, str) else json.dumps(message, indent=2), host)
        for warning in value.get("warnings") or []:
            self.say("WARNING: %s" % warning, host)

    def debug_values(self, value, host):
        shown = {key: item for key, item in value.items() if key not in QUIET and key not in ("msg", "action")}
        if shown:
            self.say(json.dumps(shown, indent=2, ensure_ascii=False, sort_keys=True), host)

    def finish(self, result, value, word):
        """The lines of one result. A loop's items have been shown one by one."""
        host = self.name_of(result)
        task = part(result, "task")
        short = str(task.action).rsplit(".", 1)[-1]
        if "results" in value and getattr(task, "loop", None) is not None:
            if word == "failed":
                self.say("%s: %s" % (word, value.get("msg", "")), host)
            return
        self.item_lines(short, value, word, host)

    def item_lines(self, short, value, word, host, label=None):
        self.output(value, host)
        if short in COMMANDS and "rc" in value:
            parts = ["%s" % word]
            if label is not None:
                parts.append("item: %s" % label)
            if value.get("delta"):
                parts.append("Runtime: %s" % value["delta"])
            if word == "failed":
                parts.append("rc: %s" % value["rc"])
                if value.get("msg") and value["msg"] != "non-zero return code":
                    self.say(value["msg"], host)
            self.say(" | ".join(parts), host)
            return
        if word == "failed" or short in ("debug", "assert", "fail", "pause"):
            self.details(value, host)
        else:
            for warning in value.get("warnings") or []:
                self.say("WARNING: %s" % warning, host)
        if short == "debug":
            self.debug_values(value, host)
        if word == "failed" and value.get("exception"):
            self.say(value["exception"], host)
        self.say(word if label is None else "%s | item: %s" % (word, label), host)

    def v2_runner_on_ok(self, result):
        value = self.record(result)
        self.finish(result, value, "changed" if value.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        value = self.record(result, failed=True)
        self.finish(result, value, "failed")
        if ignore_errors:
            self.say("ignored", self.name_of(result))
            return
        message = value.get("msg") or value.get("stderr") or value.get("stdout") or ""
        if value.get("results") and isinstance(value["results"], list):
            said = [item.get("msg") for item in value["results"] if isinstance(item, dict) and item.get("failed")]
            message = next((text for text in said if text), message)
        rescued = self.has_rescue(part(result, "task"))
        if not rescued:
            name, host = part(result, "task").get_name().strip(), part(result, "host").get_name()
            self.will_fail("task %s failed on %s: %s" % (json.dumps(name), host, message))
        self.failures.append({
            "play": self.plays[-1]["play"]["name"] if self.plays else "",
            "task": part(result, "task").get_name().strip(),
            "host": part(result, "host").get_name(),
            "message": str(message)[:500],
            "rescued": rescued,
        })

    def has_rescue(self, task):
        above = getattr(task, "_parent", None)
        while above is not None:
            if getattr(above, "rescue", None):
                return True
            above = getattr(above, "_parent", None)
        return False

    def v2_runner_on_skipped(self, result):
        self.record(result, skipped=True)
        self.say("skipping: Conditional result was False", self.name_of(result))

    def v2_runner_on_unreachable(self, result):
        value = self.record(result, unreachable=True)
        name = part(result, "host").get_name()
        self.details(value, self.name_of(result))
        self.say("unreachable", self.name_of(result))
        if not getattr(part(result, "task"), "ignore_unreachable", False):
            self.unreachable.add(name)
            # Such an attempt may be repeated.
            self.early = None

    def v2_runner_retry(self, result):
        value = part(result, "result")
        left = int(value.get("retries") or 0) - int(value.get("attempts") or 0)
        self.say("FAILED - RETRYING: %s (%d retries left)" % (part(result, "task").get_name(), left),
                 self.name_of(result))

    def item(self, result, word):
        value = plain(part(result, "result"))
        short = str(part(result, "task").action).rsplit(".", 1)[-1]
        label = part(result, "result").get("_ansible_item_label")
        if label is None:
            label = value.get(value.get("ansible_loop_var") or "item", "")
        text = label if isinstance(label, str) else json.dumps(plain(label), ensure_ascii=False)
        self.item_lines(short, value, word, self.name_of(result), text)

    def v2_runner_item_on_ok(self, result):
        self.item(result, "changed" if part(result, "result").get("changed") else "ok")

    def v2_runner_item_on_failed(self, result):
        self.item(result, "failed")

    def v2_runner_item_on_skipped(self, result):
        self.item(result, "skipping")

    # -- the end -------------------------------------------------------------------------------

    def v2_playbook_on_stats(self, stats):
        self.close_task()
        if self.plays:
            self.plays[-1]["play"]["duration"].setdefault("end", iso(now()))
        self.say("")
        self.say("PLAY RECAP")
        summary = {}
        for host in sorted(stats.processed.keys()):
            numbers = stats.summarize(host)
            summary[host] = numbers
            self.say("ok: %(ok)d changed: %(changed)d unreachable: %(unreachable)d failed: %(failures)d "
                     "skipped: %(skipped)d rescued: %(rescued)d ignored: %(ignored)d" % numbers, host)
        self.say("")
        final = [failure for failure in self.failures if not failure["rescued"]]
        if not final and any(numbers["failures"] for numbers in summary.values()):
            final = self.failures[-1:]
        for failure in self.failures:
            failure.pop("rescued", None)
        self.write({
            "plays": self.plays,
            "stats": summary,
            "failing_task": final[0] if final else None,
            "unreachable": sorted(self.unreachable),
        })

    def write(self, document):
        path = os.environ.get("GATELOG_PLAYBOOK_JSON")
        if not path:
            return
        beside = path + ".new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False)
        os.replace(beside, path)
