# SPDX-License-Identifier: Apache-2.0
"""gatelog's console: one line of text for everything that happens, as it happens.

What commands write is followed while they run (gatelog_follow); all lines go through gatelog_console to the executor,
all results through gatelog_results the same way. Where GATELOG_EARLY_FAILURE is set, the
executor is told as soon as it is certain that the playbook fails.
"""

import json
import os
import sys

from ansible.plugins.callback import CallbackBase

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shared"))

import gatelog_follow  # noqa: E402
from gatelog_console import Console, now  # noqa: E402
from gatelog_results import Results, plain  # noqa: E402

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
    "zuul_log_id",
}
COMMANDS = {"command", "shell", "raw", "script", "win_command", "win_shell"}


def iso(moment):
    return moment.isoformat(timespec="microseconds") + "Z"


def part(thing, name):
    """The named part of a result object; newer Ansible has no underscore before it."""
    if hasattr(thing, name):
        return getattr(thing, name)
    return getattr(thing, "_" + name)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "gatelog_stream"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.console = Console()
        self.say = self.console.say
        self.results = Results(self.console)
        self.play = ""
        # The first failure that nothing rescues, and the last one of all.
        self.failing, self.last_failure = None, None
        self.failures = 0
        self.unreachable = set()
        # Whether somebody wants to know, and does not yet.
        self.early = bool(os.environ.get("GATELOG_EARLY_FAILURE"))
        self.console.share()
        gatelog_follow.install(self.console)

    def will_fail(self, why):
        if self.early:
            self.early = False
            self.console.will_fail(why)

    def name_of(self, result):
        host = part(result, "host").get_name()
        delegated = part(result, "result").get("_ansible_delegated_vars") or {}
        target = delegated.get("ansible_delegated_host") if isinstance(delegated, dict) else None
        return host + " -> " + str(target) if target and str(target) != host else host

    # -- plays and tasks -----------------------------------------------------------------------

    def v2_playbook_on_play_start(self, play):
        self.play = play.get_name().strip()
        started = {"name": self.play, "id": str(play._uuid), "start": iso(now())}
        self.results.write({"play": started})
        self.say("")
        self.say("PLAY [%s]" % self.play)

    def task_start(self, task, word):
        name = task.get_name().strip()
        started = {"name": name, "id": str(task._uuid), "start": iso(now())}
        role = getattr(task, "_role", None)
        if role is not None:
            started["role"] = {"name": role.get_name(), "id": str(role._uuid), "path": str(role._role_path)}
        self.results.write({"task": started})
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
        host = part(result, "host").get_name()
        self.results.result(value, task=str(task._uuid), host=host, end=iso(now()))
        return value

    def output(self, result, host):
        """What a command wrote, unless it was followed while it ran."""
        whole = part(result, "result")
        if "zuul_log_id" in whole:
            return
        for key in ("stdout", "stderr"):
            text = whole.get(key)
            if text:
                self.console.output(str(text), host)

    def details(self, value, host):
        if value.get("msg"):
            message = value["msg"]
            self.say(message if isinstance(message, str) else json.dumps(message, indent=2), host)
        for warning in value.get("warnings") or []:
            self.say("WARNING: %s" % warning, host)

    def module_failure(self, value, host):
        """Where a module itself broke, what it said."""
        if "censored" in value:
            return
        said = value.get("module_stdout"), value.get("exception") or value.get("module_stderr")
        for text in said:
            # Newer Ansible has words of its own for nothing.
            if value.get("failed") and text and "traceback unavailable" not in text:
                self.say(text, host)

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
        self.item_lines(result, short, value, word, host)

    def item_lines(self, result, short, value, word, host, label=None):
        self.output(result, host)
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
            self.module_failure(value, host)
            self.say(" | ".join(parts), host)
            return
        if word == "failed" or short in ("debug", "assert", "fail", "pause"):
            self.details(value, host)
        else:
            for warning in value.get("warnings") or []:
                self.say("WARNING: %s" % warning, host)
        if short == "debug":
            self.debug_values(value, host)
        self.module_failure(value, host)
        self.say(word if label is None else "%s | item: %s" % (word, label), host)

    def v2_runner_on_ok(self, result):
        value = self.record(result)
        self.finish(result, value, "changed" if value.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        value = self.record(result, failed=True)
        if not ignore_errors:
            self.failures += 1
            self.console.failure(self.failures)
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
            # What it says stays on the console: it may hold what nobody should keep.
            self.will_fail("task %s failed on %s" % (json.dumps(name), host))
        failure = {
            "play": self.play,
            "task": part(result, "task").get_name().strip(),
            "host": part(result, "host").get_name(),
            "message": str(message)[:500],
            "number": self.failures,
        }
        self.last_failure = failure
        if not rescued and self.failing is None:
            self.failing = failure
            self.results.write({"failing_task": failure})

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
            self.results.write({"unreachable": sorted(self.unreachable)})
            # Such an attempt may be repeated.
            self.early = False
            self.console.unreachable()

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
        self.item_lines(result, short, value, word, self.name_of(result), text)

    def v2_runner_item_on_ok(self, result):
        self.item(result, "changed" if part(result, "result").get("changed") else "ok")

    def v2_runner_item_on_failed(self, result):
        self.item(result, "failed")

    def v2_runner_item_on_skipped(self, result):
        self.item(result, "skipping")

    # -- the end -------------------------------------------------------------------------------

    def v2_playbook_on_stats(self, stats):
        self.say("")
        self.say("PLAY RECAP")
        summary = {}
        for host in sorted(stats.processed.keys()):
            numbers = stats.summarize(host)
            summary[host] = numbers
            self.say("ok: %(ok)d changed: %(changed)d unreachable: %(unreachable)d failed: %(failures)d "
                     "skipped: %(skipped)d rescued: %(rescued)d ignored: %(ignored)d" % numbers, host)
        self.say("")
        final = self.failing
        if final is None and any(numbers["failures"] for numbers in summary.values()):
            final = self.last_failure
        end = {"stats": summary, "end": iso(now()), "unreachable": sorted(self.unreachable)}
        if final is not None:
            end["failing_task"] = final
        self.results.end(end)
