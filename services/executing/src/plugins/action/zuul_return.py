# SPDX-License-Identifier: Apache-2.0
"""zuul_return: a job hands data to gatelog, to its reports and to the jobs that depend on it.

Runs on the executor whatever the host. Repeated calls add up. Zuul: maps are merged and everything else is replaced,
but of `zuul` the lists `artifacts`, `warnings` and `redactions` grow (what is new comes first), and of `file_comments`
the list of each file (what is new comes last).
"""

import json
import os

import yaml

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

GROWING = ("artifacts", "warnings", "redactions")


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


def merge(old, new):
    """`new` over `old`; maps are merged at every depth."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    merged = dict(old)
    for key, value in new.items():
        merged[key] = merge(old[key], value) if key in old else value
    return merged


def as_map(value):
    return value if isinstance(value, dict) else {}


def as_list(value):
    return value if isinstance(value, list) else []


def add(document, kind, new):
    if not isinstance(new, dict):
        raise AnsibleError("zuul_return: %s must be a mapping" % kind)
    new = plain(new)
    old = document.setdefault(kind, {})
    merged = merge(old, new)
    old, new = as_map(old.get("zuul")), as_map(new.get("zuul"))
    # What is no list stays, and is refused later.
    grown = {key: as_list(new.get(key)) + as_list(old.get(key)) for key in GROWING if isinstance(new.get(key, []), list)}
    comments = {path: list(as_list(said)) for path, said in as_map(old.get("file_comments")).items()}
    for path, said in as_map(new.get("file_comments")).items():
        comments[path] = comments.get(path, []) + as_list(said)
    grown["file_comments"] = comments
    for key, value in grown.items():
        if value and isinstance(merged.get("zuul"), dict):
            merged["zuul"][key] = value
    document[kind] = merged


def check(kind, data):
    """What Zuul checks before it keeps anything; an error names the place and shows no value, which may be secret."""
    def refuse(place, wanted):
        raise AnsibleError("zuul_return: %s.%s must be %s" % (kind, place, wanted))

    if "zuul" not in data:
        return
    if not isinstance(data["zuul"], dict):
        refuse("zuul", "a mapping")
    own = data["zuul"]
    if "log_url" in own and not isinstance(own["log_url"], str):
        refuse("zuul.log_url", "a text")
    if "warnings" in own and not isinstance(own["warnings"], list):
        refuse("zuul.warnings", "a list of texts")
    for index, warning in enumerate(own.get("warnings", [])):
        if not isinstance(warning, str):
            refuse("zuul.warnings[%d]" % index, "a text")
    if "artifacts" in own and not isinstance(own["artifacts"], list):
        refuse("zuul.artifacts", "a list of mappings with name, url and, if wanted, metadata")
    for index, artifact in enumerate(own.get("artifacts", [])):
        place = "zuul.artifacts[%d]" % index
        if not isinstance(artifact, dict):
            refuse(place, "a mapping with name, url and, if wanted, metadata")
        for key in ("name", "url"):
            if not isinstance(artifact.get(key), str):
                refuse("%s.%s" % (place, key), "there, and a text")
        if not isinstance(artifact.get("metadata", {}), dict):
            refuse(place + ".metadata", "a mapping")
        unknown = sorted(set(artifact) - {"name", "url", "metadata"})
        if unknown:
            refuse(place, "without %s: only name, url and metadata are known" % ", ".join(unknown)[:200])


def load(path):
    """A file of data. Zuul: a relative path is one in the executor's working directory, and the file holds JSON; YAML
    is taken too."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            return json.loads(text)
        except ValueError:
            return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AnsibleError("zuul_return: cannot read %s in %s: %s" % (path, os.getcwd(), type(error).__name__))


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
                document = json.loads(file.read() or "{}")
        # Zuul: files first, and `data` over them.
        for kind, file in (("data", "file"), ("secret_data", "secret_file")):
            if arguments.get(file):
                add(document, kind, load(str(arguments[file])))
            if arguments.get(kind):
                add(document, kind, arguments[kind])
        for kind in ("data", "secret_data"):
            check(kind, document.setdefault(kind, {}))
        beside = target + ".new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.chmod(beside, 0o600)
        os.replace(beside, target)
        # Nothing of the data: it may be secret.
        result["changed"] = True
        return result
