"""The site that zuul-jobs is run on: a config project with a base job as OpenDev's, zuul-jobs, and a project under test."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

HOST = "git.test"
# How many cases share a build at most.
BUNDLE = 6

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
@NODESET@"""

NODESET = "    nodeset: {nodes: [{name: node, label: sandbox}]}\n"

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


@dataclass
class Build:
    """A build, and the cases that it runs, each with a playbook of its own: the base job costs more than most roles do."""

    cases: list

    def name(self):
        first = job_name(self.cases[0])
        return first if len(self.cases) == 1 else f"{first}-and-{len(self.cases) - 1}"

    def is_trusted(self):
        return not self.cases[0].job and self.cases[0].trusted

    def nodes(self):
        return max((case.nodes for case in self.cases), key=len)

    def machine_names(self):
        """What its machines are called: one for each of its nodes, and one for a build without nodes too."""
        return [f"{self.name()}-{number}" for number in range(max(1, len(self.nodes())))]

    def part(self, case, console):
        """Its console from where the case's playbook starts to where the next one does; without it, the whole."""
        at = [self.start(other, console) for other in self.cases]
        mine = at[self.cases.index(case)]
        if len(self.cases) == 1 or mine < 0:
            return console if len(self.cases) == 1 else ""
        return console[mine:min([other for other in at if other > mine], default=len(console))]

    def start(self, case, console):
        return console.find(f"{job_name(case)}.yaml@")


def grouped(cases, over_ssh):
    """The builds of a run, long ones first. Cases that are expected to work share one, up to BUNDLE of them."""
    made, bundle = [], []
    for case in cases:
        if case.alone or case.job or case.trusted or len(case.nodes) > 1 or case.expected(over_ssh)[0] != "works":
            made.append(Build([case]))
        else:
            bundle.append(case)
    return [Build(bundle[at:at + BUNDLE]) for at in range(0, len(bundle), BUNDLE)] + made


def job_name(case):
    return "case-" + "".join(c if c.isalnum() else "-" for c in case.name).strip("-")


# A job names one machine (`host`); others that a case needs are added as its playbook begins.
ANOTHER = """- hosts: localhost
  tasks:
    - add_host:
        name: @ADDRESS@
        ansible_connection: ssh
        ansible_host: @ADDRESS@
        ansible_port: @PORT@
        ansible_user: root
        ansible_python_interpreter: auto
        ansible_ssh_common_args: -o StrictHostKeyChecking=no
        nodepool: {private_ipv4: @ADDRESS@, public_ipv4: null, public_ipv6: null}

"""


def playbook(case, peers, shares):
    """A play that prepares, has the roles, and looks whether they did it. `peers`: the machines beside the one of the job.
    `shares`: other cases are in the job, so it has not this one's variables."""
    hosts = "all" if case.nodes else "localhost"
    text = "".join(ANOTHER.replace("@ADDRESS@", peer.address).replace("@PORT@", str(peer.port)) for peer in peers)
    text += f"- hosts: {hosts}\n" + (f"  vars: {json.dumps(case.vars)}\n" if shares else "")
    if case.before:
        text += "  pre_tasks:\n" + indented(case.before, 4)
    text += "  roles:\n" + "".join(f"    - {name}\n" for name in case.roles)
    if case.after:
        text += "  post_tasks:\n" + indented(case.after, 4)
    return text


def job(build, machines, fingerprint):
    """The job of a build; JSON is YAML. It runs on a machine over SSH, or on local nodes."""
    first = build.cases[0]
    attributes = {"name": build.name(), "parent": first.job or "base", "attempts": 1, "roles": [{"zuul": "zuul-jobs"}]}
    if machines:
        attributes |= {"host": machines[0].host(), "fingerprint": fingerprint}
    else:
        attributes["nodeset"] = {"nodes": [{"name": name, "label": "sandbox"} for name in build.nodes()]}
    if len(build.cases) == 1:
        attributes["vars"] = first.vars
    if not first.job:
        attributes["run"] = [f"playbooks/{job_name(case)}.yaml" for case in build.cases]
    return {"job": attributes}


class Site:
    """A site in a directory: `s/` is gatelog's, `logs/` a log server, `clones/` a developer's.

    The name is short, because the sockets of Ansible's ssh lie deep below it and a socket's path holds 107 bytes."""

    def __init__(self, directory, gatelog, ansible_root, slots, nodes=None):
        """`nodes`: the machines that cases run on over SSH."""
        self.directory = Path(directory)
        self.gatelog, self.ansible_root = gatelog, ansible_root
        self.site, self.logserver = self.directory / "s", self.directory / "logs"
        for place in (self.site, self.logserver):
            place.mkdir(parents=True)
        self.slots, self.nodes = slots, nodes

    def machines(self, build):
        return [self.nodes.nodes[name] for name in build.machine_names()] if self.nodes else []

    def job(self, build):
        return job(build, self.machines(build), self.nodes and self.nodes.fingerprint)

    def playbooks(self, build):
        if build.cases[0].job:
            return {}
        return {f"playbooks/{job_name(case)}.yaml": playbook(case, self.machines(build)[1:], len(build.cases) > 1) for case in build.cases}

    def configure(self):
        # What pip is told on this host, pip is told in a build: an index, a proxy's certificate.
        shown = [path for path in ("/etc/pip.conf",) if os.path.exists(path)]
        variables = {"zuul_logserver_root": str(self.logserver), "zuul_log_url": "https://logs.example.org"}
        if self.nodes:
            # The nodes share a network, and all of them the one port that output of commands is followed on.
            variables["zuul_console_disabled"] = True
        (self.site / "variables.json").write_text(json.dumps(variables))
        (self.site / "gatelog.toml").write_text(
            f"[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = {self.slots}\n"
            "min-avail-hdd = 0\nmin-avail-inodes = 0\nmin-avail-mem = 0\nload-multiplier = 0\n"
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

    def projects(self, builds, base, source):
        """Makes the three projects; gives the files of the change that has every build as a job. `base`: with which playbooks."""
        pipelines = PIPELINES.replace("@PLAYBOOKS@", BASE_PLAYBOOKS if base == "base" else "")
        pipelines = pipelines.replace("@NODESET@", "" if self.nodes else NODESET)
        config = {"zuul.yaml": pipelines, "playbooks/base/pre.yaml": PRE, "playbooks/base/post.yaml": POST}
        files = {"zuul.yaml": ""}
        for build in builds:
            into = config if build.is_trusted() else files
            into["zuul.yaml"] += f"\n- {json.dumps(self.job(build))}\n"
            into |= self.playbooks(build)
        files["zuul.yaml"] += f"\n- {json.dumps({'project': {'check': {'jobs': [build.name() for build in builds]}}})}\n"
        self.create("config", config)
        self.mirror(source, "zuul-jobs")
        self.create("app", PROJECT)
        return files


def write(directory, files):
    for path, content in files.items():
        path = directory / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
