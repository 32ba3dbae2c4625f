# SPDX-License-Identifier: Apache-2.0
"""gatelog_freeze: writes down what a host's variables come to, before any playbook of the job runs.

Runs on the executor whatever the host. A variable that cannot be had yet (it names something that is not there, or its
template fails) is left out: for playbooks that get frozen variables it does not exist.
"""

import json
import os

from ansible.plugins.action import ActionBase


def plain(value):
    """The value without Ansible's own types, so that it can be written as JSON."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("names", "into"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        with open(self._task.args["names"], encoding="utf-8") as file:
            asked = json.load(file).get(variables.get("inventory_hostname"))
        if asked is None:
            return result
        frozen, left_out = {}, []
        for name in asked["names"]:
            try:
                frozen[name] = plain(self._templar.template(variables[name], fail_on_undefined=True))
            except Exception:  # whatever a template may raise: it is the job's
                left_out.append(name)
        place = os.path.join(self._task.args["into"], asked["file"])
        with open(place + ".new", "w", encoding="utf-8") as file:
            json.dump(frozen, file)
        os.replace(place + ".new", place)
        if left_out:
            result["warnings"] = ["not known yet, and left out: %s" % ", ".join(sorted(left_out))]
        return result
