# SPDX-License-Identifier: Apache-2.0
"""synchronize of the collection ansible.posix, which finds a local node's files where its tasks find them.

Over SSH a relative path on the node is relative to the home of its user. A local node is a directory of the executor,
and the collection would look for the path beside the playbook.
"""

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import action_loader

COLLECTION = "ansible.posix.synchronize"

Synchronize = action_loader.get(COLLECTION, class_only=True) or ActionBase


def on_node(path, home):
    """The path on a node that has its home there. An rsync URL, a variable and `host:path` stay as they are."""
    if not home or not isinstance(path, str) or not path or ":" in path:
        return path
    if path.startswith("~") and path[1:2] not in ("", "/"):
        return path
    if path.startswith("~"):
        path = path[2:]
    joined = os.path.join(home, path)
    # What rsync makes of a directory depends on a slash at the end.
    return joined if not path.endswith("/") else os.path.join(joined, "")


class ActionModule(Synchronize):
    def run(self, tmp=None, task_vars=None):
        if Synchronize is ActionBase:
            raise AnsibleActionFail(
                "synchronize is not in ansible-core: it belongs to the collection ansible.posix, which the versions that"
                " `gatelog ansible install` installs have"
            )
        home = (task_vars or {}).get("gatelog_node_home")
        if not home:
            return super().run(tmp, task_vars)
        given = self._task.args
        side = "src" if given.get("mode", "push") == "pull" else "dest"
        self._task.args = dict(given, **{side: on_node(given.get(side), home)})
        try:
            return super().run(tmp, task_vars)
        finally:
            # The task may be repeated.
            self._task.args = given
