# SPDX-License-Identifier: Apache-2.0
"""Ansible's own `local` connection, which for a local node runs as if the task had logged in there.

A local node is a directory, the home of its user. Tasks on it start there and find it as their home, as they would
over SSH on a machine. On the executor itself nothing is changed.
"""

DOCUMENTATION = """
    name: local
    short_description: runs tasks on this host, at home in the directory of a local node
    description:
        - Runs tasks on this host, at home in the directory of a local node.
    author: gatelog
    extends_documentation_fragment:
        - connection_pipelining
    options:
        node_home:
            description: the directory of the node; none on the executor itself
            default: ""
            vars:
                - name: gatelog_node_home
        node_user:
            description: the user of the node
            default: ""
            vars:
                - name: ansible_user
"""

import importlib.util
import os
import shlex

import ansible.plugins.connection


def load():
    """Ansible's own module: this one takes its name."""
    place = os.path.join(os.path.dirname(ansible.plugins.connection.__file__), "local.py")
    spec = importlib.util.spec_from_file_location("gatelog_ansible_local", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


local = load()


class Connection(local.Connection):
    transport = "local"

    @property
    def cwd(self):
        """Where commands start, and what relative paths of files are relative to."""
        # Options are not there yet while the connection is made.
        home = self.get_option("node_home") if self._load_name else None
        return home or self._cwd

    @cwd.setter
    def cwd(self, value):
        # Ansible sets the directory of the playbook here before each command.
        self._cwd = value

    def _connect(self):
        if self.get_option("node_home"):
            # Whose home `~` is; without a node the user of the executor.
            self.default_user = self.get_option("node_user")
        return super()._connect()

    def exec_command(self, cmd, in_data=None, sudoable=True):
        home = self.get_option("node_home")
        if home:
            user = self.get_option("node_user") or "zuul"
            settings = "HOME=%s USER=%s LOGNAME=%s" % tuple(shlex.quote(word) for word in (home, user, user))
            cmd = "export %s; %s" % (settings, cmd if isinstance(cmd, str) else os.fsdecode(cmd))
        return super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
