# SPDX-License-Identifier: Apache-2.0
"""The secrets of a playbook, as variables of the group `all` beside its inventory.

They come from the memory of the process that runs the playbook (gatelog_playbook.py), never from a file: whatever else
runs in the sandbox could read one. In strength they are what `group_vars/all.yaml` would be. Zuul: the same strength.
"""

import os
import sys

from ansible.inventory.group import Group
from ansible.plugins.vars import BaseVarsPlugin

DOCUMENTATION = """
name: gatelog_secrets
short_description: secrets of a playbook
description: Gives the secrets of a playbook to the group `all`.
options: {}
"""


class VarsModule(BaseVarsPlugin):
    REQUIRES_ENABLED = False
    # Ansible 2.16 asks for it; others ignore it.
    is_stateless = False
    known = None

    def get_vars(self, loader, path, entities, cache=True):
        super().get_vars(loader, path, entities)
        inventory = os.environ.get("GATELOG_PLAYBOOK_DIRECTORY")
        named_all = any(isinstance(entity, Group) and entity.name == "all" for entity in
                        (entities if isinstance(entities, list) else [entities]))
        if not named_all or os.fsdecode(path) != inventory:
            return {}
        if VarsModule.known is None:
            text = getattr(sys.modules.get("gatelog_held"), "secrets", None)
            VarsModule.known = (loader.load(text, file_name="<secrets>", show_content=False) or {}) if text else {}
        return VarsModule.known
