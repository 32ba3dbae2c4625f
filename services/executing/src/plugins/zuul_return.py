# SPDX-License-Identifier: Apache-2.0
"""zuul_return: a job hands data to gatelog, to its reports and to the jobs that depend on it.

Runs on the executor whatever the host. Repeated calls add up: maps are merged, lists below `zuul`
are appended, everything else is replaced.
"""

import json
import os

import yaml

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


def plain(value):
    """The value without Ansible's own types, so that it can be written as JSON."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool,)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


def merge(old, new, append=False):
    """`new` over `old`. `append`: lists are put behind those that are there."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for key, value in new.items():
            merged[key] = merge(old[key], value, append) if key in old else value
        return merged
    if append and isinstance(old, list) and isinstance(new, list):
        return old + new
    return new


def add(document, kind, new):
    if not isinstance(new, dict):
        raise AnsibleError("zuul_return: %s must be a mapping" % kind)
    new = plain(new)
    old = document.setdefault(kind, {})
    zuul = merge(old.get("zuul", {}), new["zuul"], append=True) if "zuul" in new else old.get("zuul")
    merged = merge(old, {key: value for key, value in new.items() if key != "zuul"})
    if zuul is not None:
        merged["zuul"] = zuul
    document[kind] = merged


def load(path, base):
    if not os.path.isabs(path):
        path = os.path.join(base, path)
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AnsibleError("zuul_return: cannot read %s: %s" % (path, type(error).__name__))


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    KNOWN = frozenset(("path", "file", "secret_file", "data", "secret_data"))
    _VALID_ARGS = KNOWN

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self._task.args
        unknown = sorted(set(arguments) - self.KNOWN)
        if unknown:
            raise AnsibleError("zuul_return: unknown parameter %s" % ", ".join(unknown))
        target = arguments.get("path") or os.environ.get("GATELOG_RESULT_DATA_FILE")
        if not target:
            raise AnsibleError("zuul_return: no file to write to; it only works in a build")
        document = {}
        if os.path.exists(target):
            with open(target, encoding="utf-8") as file:
                document = json.load(file)
        base = self._loader.get_basedir()
        for kind, file in (("data", "file"), ("secret_data", "secret_file")):
            if arguments.get(file):
                add(document, kind, load(str(arguments[file]), base))
            if arguments.get(kind) is not None:
                add(document, kind, arguments[kind])
        beside = target + ".new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.chmod(beside, 0o600)
        os.replace(beside, target)
        # Nothing of the data: it may be secret.
        result["changed"] = True
        return result
