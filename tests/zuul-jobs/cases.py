"""The roles and jobs of zuul-jobs that are run, and what is expected of each, on a local node and over SSH.

A local node is a directory of the executor's host inside the build's sandbox: /usr and /etc are read-only, nothing runs as
another user, and there is no sshd. Roles that install packages, start services or log in need a node that is a machine;
they are here with that reason, so that the table tells what happens to them. Many of them work over SSH, on the nodes of
ssh_node.py: root, a writable /etc and (where the tests run as root) /usr, but the network of this machine, one user, no
services and no containers.

`works`: the job ends SUCCESS, with the assertions in `after`. `fails`: it ends FAILURE, and its console says `says`; that is
what the role itself says where its precondition is missing, and is as good a proof that it ran. `cannot`: it cannot work on
such a node, for the reason given; whether it says so well is not judged, but SUCCESS would be a surprise.
"""

import json
from dataclasses import dataclass, field

# What the host must have; else the case is skipped. LAYERS: nodes over SSH have a /usr that packages can be installed into;
# APT: these can be had.
RSYNC, PYPI, GPG, GO, NPM, KEYGEN = "rsync", "pypi", "gpg", "go", "npm", "ssh-keygen"
LAYERS, APT = "layers", "apt"


@dataclass
class Case:
    name: str
    expect: str
    reason: str = ""
    says: str = ""
    # The job: of zuul-jobs (`job`), or one with a playbook that has the role.
    job: str = ""
    roles: list = field(default_factory=list)
    before: str = ""
    after: str = ""
    vars: dict = field(default_factory=dict)
    nodes: list = field(default_factory=lambda: ["node"])
    needs: list = field(default_factory=list)
    # What is expected over SSH, why, and what else it needs there; empty: as on a local node.
    ssh: str = ""
    ssh_reason: str = ""
    ssh_needs: list = field(default_factory=list)
    # A playbook of the config project: what reads the executor's own files, or holds secrets.
    trusted: bool = False
    # It wants a workspace in which no other case has been.
    alone: bool = False

    def expected(self, over_ssh):
        """What is expected, and why."""
        return (self.ssh, self.ssh_reason) if over_ssh and self.ssh else (self.expect, self.reason)

    def wants(self, over_ssh):
        return self.needs + (self.ssh_needs if over_ssh else [])


def role(name, expect="works", **more):
    return Case(name=name, expect=expect, roles=more.pop("roles", [name]), **more)


def job(name, expect="works", **more):
    return Case(name=f"job {name}", expect=expect, job=name, **more)


def is_file(path, on="localhost"):
    delegate = f"\n  delegate_to: {on}" if on else ""
    return f"""
- name: The file is there
  stat:
    path: "{path}"
  register: found{delegate}
- assert:
    that: found.stat.exists
"""


def runs(command):
    """The node runs a command and it succeeds."""
    return f"\n- shell: {json.dumps(command)}\n"


def is_repository():
    """The project is there, with the change under test checked out and nothing left over."""
    return """
- shell: test "$(git log -1 --format=%s)" = "Run all cases" && test -f README && test -z "$(git status --porcelain)"
  args: {chdir: "{{ zuul.project.src_dir }}"}
"""


# Each host of the inventory is in a file of each.
NAMED_IN = """
- shell: grep "^{{ hostvars[item].ansible_host }} @LINE@" @FILE@
  loop: "{{ groups.all }}"
"""
LOGS = "{{ zuul.executor.log_root }}"
WORK = "{{ zuul.executor.work_root }}"
SRC = "{{ zuul.project.src_dir }}"

NO_MACHINE = "needs a node that is a machine"
PACKAGES = f"{NO_MACHINE}: it installs packages"
ETC = f"{NO_MACHINE}: it writes to /etc"
SSH = f"{NO_MACHINE}: it logs in by SSH"
SERVICE = f"{NO_MACHINE}: it starts a service or containers"
DOWNLOAD = f"{NO_MACHINE}: it downloads a program and puts it below /usr"

# Over SSH.
NETWORK = "needs a node with a network of its own: it changes firewall rules or interfaces"
FOREIGN = "needs a site of its maker's, which tests do not use"
CONTAINERS = "needs a node that can run containers"

SSH_KEY = {"ssh_private_key": "not a key", "fqdn": "files.example.org", "ssh_known_hosts": "files.example.org ssh-rsa AAAA"}

MAKE_SSH_KEY = f"""
- command: ssh-keygen -q -t rsa -N '' -f "{WORK}/key"
  delegate_to: localhost
"""

MAKE_GPG_KEY = """
- name: Make a key
  shell: |
    set -e
    export GNUPGHOME=$(mktemp -d)
    gpg --batch --quiet --passphrase '' --quick-gen-key test@example.org rsa2048 sign never
    gpg --batch --armor --export-secret-keys
  register: made_key
- set_fact:
    gpg_key: {private: "{{ made_key.stdout }}"}
"""

ROLES = [
    # ---- what every base job has
    role("emit-job-header"),
    role("set-zuul-log-path-fact", after="\n- assert: {that: zuul_log_path is match('.../test/')}\n"),
    role("log-inventory", after=is_file(f"{LOGS}/zuul-info/inventory.yaml")),
    role("validate-host", after=is_file(LOGS + "/zuul-info/host-info.{{ inventory_hostname }}.yaml")),
    role("start-zuul-console"),
    role("prepare-workspace", needs=[RSYNC], after=is_file(f"{SRC}/README", on="")),
    role("prepare-workspace-git", "cannot", reason=SSH, ssh="works", alone=True, after=is_repository()),
    role("test-prepare-workspace-git", "cannot", reason=SSH, ssh="works", alone=True, after=is_repository()),
    role("mirror-workspace-git-repos", "cannot", reason=SSH, ssh="works", alone=True, after=is_repository()),
    role("test-mirror-workspace-git-repos", "cannot", reason=SSH, ssh="works", alone=True, after=is_repository()),
    role("add-build-sshkey", needs=[KEYGEN], trusted=True, after=runs("grep zuul-build-sshkey ~/.ssh/authorized_keys")),
    # A build that has no key any more cannot go on, so the key is put back for what the base job does after.
    role("remove-build-sshkey", needs=[KEYGEN], roles=["add-build-sshkey", "remove-build-sshkey"], trusted=True,
         after=runs("if grep zuul-build-sshkey ~/.ssh/authorized_keys; then exit 1; fi")
         + runs("cat ~/.ssh/id_rsa.pub >> ~/.ssh/authorized_keys")),
    role("remove-zuul-sshkey", needs=[KEYGEN], trusted=True, before=MAKE_SSH_KEY + f"""
- file: {{path: ~/.ssh, state: directory, mode: "0700"}}
- lineinfile: {{path: ~/.ssh/authorized_keys, create: true, line: "{{{{ lookup('file', zuul.executor.work_root ~ '/key.pub') }}}}"}}
""", after=f"""
- shell: if ssh-add -l; then exit 1; fi
  delegate_to: localhost
- command: ssh-add "{WORK}/key"
  delegate_to: localhost
"""),
    # The role's own variable names the key that add-build-sshkey makes.
    role("copy-build-sshkey", "cannot", reason=f"{NO_MACHINE}: it looks a user up and becomes root", ssh="works", alone=True,
         needs=[KEYGEN], vars={"copy_sshkey_target_user": "root"},
         before=MAKE_SSH_KEY.replace("/key", "/{{ zuul.build }}_id_rsa"), after=is_file("/root/.ssh/id_rsa", on="")),
    role("ensure-output-dirs", after=is_file("{{ ansible_user_dir }}/zuul-output/logs", on="")),
    role("fetch-output", needs=[RSYNC], roles=["ensure-output-dirs", "fetch-output"],
         before="\n- file: {path: '{{ ansible_user_dir }}/zuul-output/logs', state: directory}\n"),
    role("merge-output-to-logs", before=f"""
- file: {{path: "{WORK}/artifacts", state: directory}}
  delegate_to: localhost
- copy: {{content: "a", dest: "{WORK}/artifacts/one.txt"}}
  delegate_to: localhost
- file: {{path: "{WORK}/docs", state: directory}}
  delegate_to: localhost
""", after=is_file(f"{LOGS}/artifacts/one.txt")),
    role("upload-logs", needs=[RSYNC], nodes=[], trusted=True, vars={"zuul_log_verbose": True, "zuul_log_compress": False}),
    role("generate-zuul-manifest", nodes=[], after=is_file(f"{LOGS}/zuul-manifest.json")),
    role("htmlify-logs", nodes=[], before=f"\n- copy: {{content: a, dest: '{LOGS}/one.txt'}}\n",
         after=is_file(f"{LOGS}/one.html")),
    role("local-log-download", nodes=[], vars={"local_log_download_api": "https://zuul.example.org/api/tenant/test"},
         after=is_file(f"{LOGS}/download-logs.sh")),
    role("limit-log-files", nodes=[]),
    role("buildset-artifacts-location", nodes=[],
         vars={"zuul_log_url": "https://logs.example.org", "zuul_log_path": "abc"}),
    role("report-logjuicer", nodes=[],
         vars={"logjuicer_web_url": "https://lj.example.org", "zuul_web_url": "https://zuul.example.org/t/test"}),
    role("intercept-job"),
    role("write-inventory", vars={"write_inventory_dest": f"{WORK}/inventory.yaml"},
         nodes=[], after=is_file(f"{WORK}/inventory.yaml")),
    # ---- several nodes
    role("multi-node-known-hosts", "cannot", nodes=["a", "b"], reason=f"{SSH} and writes to /etc", ssh="works",
         after=NAMED_IN.replace("@FILE@", "/etc/ssh/ssh_known_hosts").replace("@LINE@", "ssh-")),
    role("multi-node-hosts-file", "cannot", nodes=["a", "b"], reason=ETC, ssh="works",
         after=NAMED_IN.replace("@FILE@", "/etc/hosts").replace("@LINE@", "{{ item }}")),
    role("multi-node-firewall", "cannot", nodes=["a", "b"], reason=PACKAGES, ssh="cannot", ssh_reason=NETWORK),
    role("multi-node-bridge", "cannot", nodes=["a", "b"], reason=PACKAGES, ssh="cannot", ssh_reason=NETWORK,
         vars={"bridge_address_prefix": "172.24.4"}, before="""
- add_host: {name: "{{ groups.all[0] }}", groups: switch}
- add_host: {name: "{{ groups.all[1] }}", groups: peers}
"""),
    role("persistent-firewall", "cannot", reason=ETC, ssh="works", ssh_needs=[LAYERS, APT],
         after=is_file("/etc/iptables/rules.v4", on="")),
    role("clear-firewall", "cannot", reason=ETC, ssh="cannot", ssh_reason=NETWORK),
    role("add-authorized-keys", "works", vars={"public_keys": []}),
    # ---- keys and secrets
    role("add-sshkey", vars={"ssh_key": {"ssh_private_key": "not a key"}}, after=is_file("~/.ssh/id_rsa", on="")),
    role("remove-sshkey", roles=["add-sshkey", "remove-sshkey"], vars={"ssh_key": {"ssh_private_key": "not a key"}}),
    role("add-gpgkey", needs=[GPG], before=MAKE_GPG_KEY),
    role("remove-gpgkey", needs=[GPG], before=MAKE_GPG_KEY, roles=["add-gpgkey", "remove-gpgkey"]),
    role("sign-artifacts", needs=[GPG], nodes=[], before=MAKE_GPG_KEY + f"""
- file: {{path: "{WORK}/artifacts", state: directory}}
- copy: {{content: "a", dest: "{WORK}/artifacts/one.tar.gz"}}
""", after=is_file(f"{WORK}/artifacts/one.tar.gz.asc")),
    role("encrypt-file", "cannot", reason=PACKAGES, needs=[GPG], ssh="works", ssh_needs=[LAYERS, APT],
         vars={"encrypt_file": "{{ ansible_user_dir }}/one.txt", "encrypt_file_recipients": ["test"]}, before="""
- copy: {content: a, dest: "{{ ansible_user_dir }}/one.txt"}
- shell: |
    set -e
    export GNUPGHOME=$(mktemp -d)
    gpg --batch --quiet --passphrase '' --quick-gen-key test@example.org rsa2048 encr never
    gpg --batch --armor --export
  register: made_key
- set_fact:
    encrypt_file_keys: [{name: test, key_id: test@example.org, gpg_asc: "{{ made_key.stdout }}"}]
""", after=is_file("{{ ansible_user_dir }}/one.txt.gpg", on="")),
    role("remove-launchpad-credentials", before="""
- file: {path: ~/.launchpadlib, state: directory}
- copy: {content: secret, dest: ~/.launchpadlib/creds}
""", after=runs("test ! -e ~/.launchpadlib")),
    role("add-launchpad-credentials", "cannot", reason=PACKAGES, ssh="works", ssh_needs=[LAYERS, APT],
         vars={"lp_creds": {"access_token": "a", "access_secret": "b", "consumer_key": "c"}}, after=is_file("~/.launchpadlib/creds", on="")),
    role("add-fileserver", "fails", nodes=[], says="Add fileserver ssh key", reason="the key it is given is none",
         vars={"fileserver": {**SSH_KEY, "path": "/srv"}}),
    # ---- the workspace
    role("find-constraints"),
    role("find-constraints (missing)", "fails", roles=["find-constraints"], vars={"constraints_file": "missing.txt"},
         says="constraints_file was defined but was not found", reason="the file it is given is missing"),
    role("version-from-git", after="\n- assert: {that: scm_sha | length > 6}\n"),
    role("validate-dco-license"),
    role("render-diff", alone=True, vars={"render_command": "true"}),
    role("render-diff (differs)", "fails", alone=True, roles=["render-diff"],
         vars={"render_command": "sh -c 'echo more >> README'"}, says="The repository content is not consistent",
         reason="the command changes a file"),
    role("git-prepare-nodecache", after=is_file("{{ ansible_user_dir }}/git-cache/repos.tar.gz", on="")),
    role("test-setup"),
    role("bindep", vars={"bindep_command": "/bin/true"}),
    role("update-json-file", vars={"update_json_file_name": "{{ ansible_user_dir }}/one.json",
                                   "update_json_file_combine": {"a": 1}},
         after=is_file("{{ ansible_user_dir }}/one.json", on="")),
    role("stage-output", vars={"zuul_copy_output": {"{{ zuul.project.src_dir }}/README": "logs_txt"}},
         roles=["ensure-output-dirs", "stage-output"], after=is_file("{{ ansible_user_dir }}/logs/README.txt", on="")),
    role("configure-mirrors", "cannot", reason=ETC, ssh="works", ssh_needs=[LAYERS, APT], alone=True,
         # A node's image has no sources of its own: those of Debian's container images contradict the role's.
         before="""
- file: {path: /etc/apt/sources.list.d/debian.sources, state: absent}
  when: ansible_connection == "ssh"
""", vars={"mirror_fqdn": "deb.debian.org"}, after=runs("grep -q deb.debian.org/pypi /etc/pip.conf")),
    role("revoke-sudo"),
    # ---- Python
    role("ensure-pip"),
    role("ensure-python"),
    role("ensure-virtualenv", "cannot", reason=PACKAGES, ssh="works", ssh_needs=[LAYERS, APT], after=runs("virtualenv --version")),
    role("ensure-python-command", needs=[PYPI],
         vars={"ensure_python_command_name": "tox"}),
    role("ensure-tox", needs=[PYPI]),
    role("ensure-nox", needs=[PYPI]),
    role("ensure-uv", needs=[PYPI]),
    role("ensure-poetry", needs=[PYPI], after=runs("{{ ensure_poetry_executable }} --version")),
    role("ensure-twine", needs=[PYPI]),
    role("ensure-pyproject-build", needs=[PYPI]),
    role("build-python-release", needs=[PYPI]),
    role("ensure-sphinx", needs=[PYPI], after=runs("{{ ansible_user_dir }}/.venv/bin/sphinx-build --version")),
    role("sphinx", needs=[PYPI], roles=["ensure-sphinx", "sphinx"], before=f"""
- file: {{path: "{SRC}/doc/source", state: directory}}
- copy: {{content: "", dest: "{SRC}/doc/source/conf.py"}}
- copy: {{content: "App\\n===\\n", dest: "{SRC}/doc/source/index.rst"}}
""", after=is_file(f"{SRC}/doc/build/html/index.html", on="")),
    role("ensure-if-python", vars={"install_package": False}),
    role("tox", needs=[PYPI], roles=["ensure-tox", "tox"], vars={"tox_envlist": "unit"}),
    role("nox", needs=[PYPI], roles=["ensure-nox", "nox"], vars={"nox_session": "unit"}),
    role("fetch-tox-output", needs=[PYPI, RSYNC], roles=["ensure-tox", "tox", "fetch-tox-output"],
         vars={"tox_envlist": "unit"}),
    role("fetch-subunit-output"),
    role("fetch-coverage-output", needs=[RSYNC], before=f"""
- file: {{path: "{SRC}/cover", state: directory}}
- copy: {{content: a, dest: "{SRC}/cover/index.html"}}
""", after=is_file(f"{LOGS}/cover/index.html")),
    role("fetch-coverage-output (missing)", "fails", roles=["fetch-coverage-output"],
         says="Coverage report was not found", reason="there is no report"),
    role("fetch-python-sdist-output", needs=[RSYNC]),
    role("fetch-translation-output", needs=[RSYNC]),
    role("fetch-puppet-module-output", needs=[RSYNC]),
    role("fetch-sphinx-output", needs=[RSYNC], before=f"""
- file: {{path: "{SRC}/doc/build/html", state: directory}}
- copy: {{content: a, dest: "{SRC}/doc/build/html/index.html"}}
""", after=is_file(f"{LOGS}/html/index.html")),
    role("fetch-sphinx-tarball", needs=[RSYNC], before=f"""
- file: {{path: "{SRC}/doc/build/html", state: directory}}
- copy: {{content: a, dest: "{SRC}/doc/build/html/index.html"}}
"""),
    role("fetch-markdownlint", needs=[RSYNC], before=f"\n- copy: {{content: a, dest: '{SRC}/markdownlint.txt'}}\n",
         after=is_file(f"{LOGS}/markdownlint.txt")),
    # ---- other languages
    role("go", needs=[GO], vars={"go_command": "version"}),
    role("npm", needs=[NPM], vars={"npm_command": "unit"}),
    role("js-package-manager", needs=[NPM], vars={"js_build_command": "unit"}),
    role("ensure-javascript-packages", needs=[NPM]),
    role("ensure-javascript-build-tool", "fails", says="Ensure we know what version of node to install",
         reason="no version of Node.js is given"),
    role("fetch-javascript-output", needs=[NPM, RSYNC], before=f"\n- file: {{path: '{SRC}/dist', state: directory}}\n"),
    role("fetch-javascript-tarball", needs=[RSYNC], vars={"project_ver": "1.0"},
         before=f"\n- shell: tar czf one.tgz README\n  args: {{chdir: '{SRC}'}}\n"),
    role("fetch-javascript-content-tarball", alone=True, needs=[RSYNC], vars={"create_tarball_directory": "web"}),
    role("ensure-nodejs", "fails", says="Ensure we know what version of node to install",
         reason="no version of Node.js is given"),
    role("ensure-yarn", "fails", says="Ensure we know what version of node to install",
         reason="no version of Node.js is given"),
    role("ensure-java", "cannot", reason=PACKAGES, ssh="cannot",
         ssh_reason="Debian has no openjdk-11-jdk any more, which is the role's default"),
    role("ensure-rust", "cannot", reason=PACKAGES, ssh="cannot", ssh_reason=FOREIGN),
    role("ensure-go", "cannot", reason=DOWNLOAD, ssh="cannot", ssh_reason=FOREIGN),
    role("ensure-helm", "cannot", reason=DOWNLOAD, ssh="cannot", ssh_reason=FOREIGN),
    role("ensure-terraform", "cannot", reason=DOWNLOAD, ssh="cannot", ssh_reason=FOREIGN),
    role("terraform", "fails", says="No terraform command given", reason="no command is given"),
    # ---- containers and services
    role("ensure-docker", "cannot", reason=SERVICE, ssh="cannot", ssh_reason=FOREIGN),
    role("ensure-podman", "cannot", reason=PACKAGES, ssh="cannot",
         ssh_reason="needs a node with several users: its packages give files to them"),
    # Its packages depend on `passwd`, which is upgraded wherever Debian has a newer one.
    role("ensure-skopeo", "cannot", reason=PACKAGES, ssh="cannot",
         ssh_reason="needs a node with several users: its packages give files to them"),
    role("ensure-kubernetes", "cannot", reason=SERVICE, ssh="cannot", ssh_reason=FOREIGN),
    role("run-buildset-registry", "cannot", reason=SERVICE, ssh="cannot", ssh_reason=CONTAINERS),
    role("use-docker-mirror", "cannot", reason=ETC, vars={"docker_mirror": "http://mirror.example.org"}, ssh="works",
         after=runs("grep -q mirror.example.org /etc/docker/daemon.json")),
    role("collect-container-logs", roles=["ensure-output-dirs", "collect-container-logs"]),
    role("pause-buildset-registry", vars={"buildset_registry": {"host": "registry"}}),
    role("publish-artifacts-to-fileserver", needs=[RSYNC], nodes=[],
         vars={"zuul_fileserver_project_path": f"{WORK}/published"},
         before=f"\n- file: {{path: '{WORK}/artifacts', state: directory}}\n"),
    role("upload-afs-synchronize", needs=[RSYNC], nodes=[], vars={"afs_target": f"{WORK}/afs"},
         before=f"\n- file: {{path: '{WORK}/artifacts', state: directory}}\n"),
    role("trigger-readthedocs", "fails", says="You must define the webhook", reason="no webhook is given"),
    role("upload-forge", "fails", says="Assertion failed", reason="no credentials are given"),
    role("download-artifact", "fails", says="Query Zuul API", reason="there is no such API",
         vars={"download_artifact_api": "http://127.0.0.1:1", "download_artifact_pipeline": "check",
               "download_artifact_job": "none", "download_artifact_type": "none"}),
    role("promote-artifact", "fails", nodes=[], says="Query Zuul API", reason="there is no such API",
         vars={"promote_artifact_api": "http://127.0.0.1:1", "promote_artifact_pipeline": "check",
               "promote_artifact_job": "none", "promote_artifact_type": "none"}),
]

JOBS = [
    job("run-test-command", vars={"test_command": "grep -q gatelog README", "bindep_command": "/bin/true"}),
    job("dco-license", ssh="cannot", ssh_reason="the job looks at the executor's workspace (`zuul.executor.work_root`)"),
    job("tox", needs=[PYPI, RSYNC], vars={"tox_envlist": "unit", "bindep_command": "/bin/true"}),
    job("tox-linters", needs=[PYPI, RSYNC], vars={"bindep_command": "/bin/true"}),
    job("tox-cover", needs=[PYPI, RSYNC], vars={"bindep_command": "/bin/true"}),
    job("tox-bashate", needs=[PYPI, RSYNC], vars={"bindep_command": "/bin/true"}),
    job("nox", needs=[PYPI], vars={"nox_session": "unit", "bindep_command": "/bin/true"}),
    job("nox-linters", needs=[PYPI], vars={"bindep_command": "/bin/true"}),
    job("build-python-release", needs=[PYPI, RSYNC]),
    job("golangci-lint", "cannot", reason=DOWNLOAD, ssh="cannot", ssh_reason=FOREIGN),
    job("validate-zone-db", "cannot", reason=PACKAGES, ssh="works", ssh_needs=[LAYERS, APT]),
    job("zuul-tenant-conf-check", "cannot", reason=SERVICE, ssh="cannot", ssh_reason=CONTAINERS),
]

CASES = ROLES + JOBS
