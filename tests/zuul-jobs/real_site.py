"""The site that zuul-jobs is run on: a config project with a base job as OpenDev's, zuul-jobs, and a project under test."""

import json
import os
import subprocess
from pathlib import Path

HOST = "git.test"

BASE_PLAYBOOKS = """    pre-run: playbooks/base/pre.yaml
    post-run: playbooks/base/post.yaml
"""

PIPELINES = """
- pipeline:
    name: check
    manager: independent
    trigger: {forge: [{event: change-proposed}]}
    success: {forge: {}}
    failure: {forge: {}}

- job:
    name: base
    parent: null
    attempts: 1
    timeout: 900
@PLAYBOOKS@    roles: [{zuul: zuul-jobs}]
    nodeset: {nodes: [{name: node, label: sandbox}]}
"""

PRE = """
- hosts: localhost
  roles:
    - emit-job-header
    - log-inventory

- hosts: all
  roles:
    - validate-host
    - prepare-workspace
"""

POST = """
- hosts: all
  roles:
    - ensure-output-dirs
    - fetch-output

- hosts: localhost
  roles:
    - role: upload-logs
      zuul_log_verbose: true
      zuul_log_compress: false
"""

PROJECT = {
    "README": "A project that gatelog tests.\n",
    "tox.ini": "[tox]\nenvlist = unit\nskipsdist = true\n"
    + "".join(f"[testenv:{name}]\nskip_install = true\nallowlist_externals = sh\ncommands = sh -c '{command}'\n" for name, command in [
        ("unit", "test -f README"), ("linters", "true"), ("bashate", "true"),
        ("cover", "mkdir -p cover && touch cover/index.html"),
    ]),
    "noxfile.py": "import nox\n\n\n@nox.session(python=False)\ndef unit(session):\n    session.run('test', '-f', 'README', external=True)\n"
    "\n\n@nox.session(python=False)\ndef linters(session):\n    session.run('true', external=True)\n",
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n[project]\nname = "app"\n'
    'version = "1.0"\n\n[tool.setuptools]\npy-modules = []\n',
    "package.json": '{"name": "app", "version": "1.0.0", "scripts": {"unit": "test -f README"}}\n',
    "web/index.html": "<html></html>\n",
    ".gitignore": "cover/\nnode_modules/\n.tox/\n",
}


def git(directory, *arguments):
    environment = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Dana Developer", f"GIT_{who}_EMAIL": "dana@example.org"}
    subprocess.run(["git", "-C", str(directory), "-c", "safe.directory=*", "-c", "gc.auto=0", *arguments],
                   env=environment, check=True, stdout=subprocess.DEVNULL)


def indented(text, spaces):
    return "".join(f"{' ' * spaces}{line}\n" if line else "\n" for line in text.strip("\n").split("\n"))


def job_name(case):
    return "case-" + "".join(c if c.isalnum() else "-" for c in case.name).strip("-")


def playbook(case):
    """A play that prepares, has the roles, and looks whether they did it."""
    hosts = "all" if case.nodes else "localhost"
    text = f"- hosts: {hosts}\n"
    if case.before:
        text += "  pre_tasks:\n" + indented(case.before, 4)
    text += "  roles:\n" + "".join(f"    - {name}\n" for name in case.roles)
    if case.after:
        text += "  post_tasks:\n" + indented(case.after, 4)
    return text


def job(case):
    """The job of a case; JSON is YAML."""
    nodes = [{"name": name, "label": "sandbox"} for name in case.nodes]
    attributes = {
        "name": job_name(case),
        "parent": case.job or "base",
        "attempts": 1,
        "nodeset": {"nodes": nodes},
        "vars": case.vars,
        "roles": [{"zuul": "zuul-jobs"}],
    }
    if not case.job:
        attributes["run"] = f"playbooks/{job_name(case)}.yaml"
    return {"job": attributes}


class Site:
    """A site in a directory: `site/` is gatelog's, `logs/` a log server, `clones/` a developer's."""

    def __init__(self, directory, gatelog, ansible_root, slots):
        self.directory = Path(directory)
        self.gatelog, self.ansible_root = gatelog, ansible_root
        self.site, self.logserver = self.directory / "site", self.directory / "logs"
        for place in (self.site, self.logserver):
            place.mkdir(parents=True)
        self.slots = slots

    def configure(self):
        # What pip is told on this host, pip is told in a build: an index, a proxy's certificate.
        shown = [path for path in ("/etc/pip.conf",) if os.path.exists(path)]
        variables = {"zuul_logserver_root": str(self.logserver), "zuul_log_url": "https://logs.example.org"}
        (self.site / "variables.json").write_text(json.dumps(variables))
        (self.site / "gatelog.toml").write_text(
            f"[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = {self.slots}\n"
            f"ansible-root = {json.dumps(str(self.ansible_root))}\nvariables = \"variables.json\"\n"
            f"trusted-rw-paths = {json.dumps([str(self.logserver)])}\ntrusted-ro-paths = {json.dumps(shown)}\n"
            f"untrusted-ro-paths = {json.dumps(shown)}\n"
            f"[connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"{HOST}\"\npoll-ms = 300\n")
        (self.site / "tenants.yaml").write_text(json.dumps([{"tenant": {
            "name": "test", "max-nodes-per-job": 5, "max-job-timeout": 10800, "source": {"forge": {
                "config-projects": ["config"],
                "untrusted-projects": ["app", {"zuul-jobs": {"include": ["job"]}}]}}}}]))

    def create(self, project, files):
        """A repository of the forge with these files, and a developer's clone."""
        bare, clone = self.site / "forge" / f"{project}.git", self.directory / "clones" / project
        clone.mkdir(parents=True)
        bare.mkdir(parents=True)
        git(bare, "init", "--quiet", "--bare", "--initial-branch=master")
        git(clone, "init", "--quiet", "--initial-branch=master")
        git(clone, "remote", "add", "origin", str(bare))
        write(clone, files)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", "First")
        git(clone, "push", "--quiet", "origin", "master")

    def mirror(self, source, project):
        """A repository of the forge with the newest files of another repository, unmodified."""
        bare, clone = self.site / "forge" / f"{project}.git", self.directory / "clones" / project
        subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", str(source), str(clone)], check=True)
        git(clone, "checkout", "--quiet", "-B", "master")
        bare.mkdir(parents=True)
        git(bare, "init", "--quiet", "--bare", "--initial-branch=master")
        git(clone, "push", "--quiet", str(bare), "master")

    def propose(self, project, files, message):
        clone = self.directory / "clones" / project
        write(clone, files)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", message)
        git(clone, "push", "--quiet", "origin", "HEAD:refs/for/master/cases")

    def projects(self, cases, base, source):
        """Makes the three projects; gives the files of the change that has every case as a job. `base`: with which playbooks."""
        own = [case for case in cases if not case.job and case.trusted]
        playbooks = BASE_PLAYBOOKS if base == "base" else ""
        config = {"zuul.yaml": PIPELINES.replace("@PLAYBOOKS@", playbooks), "playbooks/base/pre.yaml": PRE, "playbooks/base/post.yaml": POST}
        config["zuul.yaml"] += "".join(f"\n- {json.dumps(job(case))}\n" for case in own)
        config |= {f"playbooks/{job_name(case)}.yaml": playbook(case) for case in own}
        self.create("config", config)
        self.mirror(source, "zuul-jobs")
        self.create("app", PROJECT)
        others = [case for case in cases if case not in own]
        text = "".join(f"- {json.dumps(job(case))}\n" for case in others)
        text += f"- {json.dumps({'project': {'check': {'jobs': [job_name(case) for case in cases]}}})}\n"
        files = {f"playbooks/{job_name(case)}.yaml": playbook(case) for case in others if not case.job}
        return files | {"zuul.yaml": text}


def write(directory, files):
    for path, content in files.items():
        path = directory / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
