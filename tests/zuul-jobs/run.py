#!/usr/bin/env python3
"""Runs roles and jobs of opendev/zuul-jobs, unmodified, in a real gatelog, and says what came of each.

usage: run.py --gatelog PROGRAM [--ansible-root DIR] [--over local|ssh] [--base base|bare] [--slots N] [--keep DIR]
           [--results FILE] [NAME…]

zuul-jobs comes from the Git repository that GATELOG_ZUUL_JOBS names, or is cloned from GitHub; nothing of it is kept. The
newest Ansible is installed into DIR unless it is there (`gatelog ansible install`). NAME is part of a case's name (cases.py).
`--over ssh`: on machines with a real OpenSSH server (ssh_node.py), in place of local nodes. `--base bare` leaves the base
job's playbooks out, to see what a role does by itself. `--results FILE` writes what came of each as JSON, for table.py.

Prints a table; exits with 1 where fewer than 90 of 100 cases are as cases.py expects, and with 2 (SKIPPED) where there is
no zuul-jobs, no Ansible or no bubblewrap.
"""

import argparse
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True  # the sources' directory stays as it is
import cases
import real_site
import ssh_node

SOURCES = ["https://github.com/opendev/zuul-jobs", "https://github.com/osism/openinfra-zuul-jobs"]
ENOUGH = 0.9
# What no case may end by, whatever is expected of it: it has not run at all.
NOT_RUN = re.compile(r"the role '[^']*' was not found|couldn't resolve module/action|Build ends: ERROR")
# One build may take this long; all of them together no longer than the sum by slots.
PATIENCE = 900


def skip(why):
    print(f"SKIPPED zuul-jobs: {why}")
    sys.exit(2)


def fetch(directory):
    """A Git repository of zuul-jobs, and its commit."""
    named = os.environ.get("GATELOG_ZUUL_JOBS")
    if named:
        source = Path(named)
        if not source.is_dir():
            skip(f"GATELOG_ZUUL_JOBS names {named}, which is no directory")
    else:
        source = Path(directory) / "zuul-jobs"
        for url in SOURCES:
            environment = dict(os.environ, GIT_TERMINAL_PROMPT="0")
            cloned = subprocess.run(["git", "clone", "--quiet", "--depth", "1", url, str(source)],
                                    env=environment, stderr=subprocess.DEVNULL, timeout=600)
            if cloned.returncode == 0:
                break
        else:
            skip("it cannot be cloned from GitHub: set GATELOG_ZUUL_JOBS to a Git repository of it")
    commit = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(source), "rev-parse", "HEAD"],
                            capture_output=True, text=True)
    if commit.returncode != 0:
        skip(f"{source} is no Git repository")
    return source, commit.stdout.strip()


def has_pypi():
    """Whether pip gets packages without this user's environment, as it does in a build."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "--isolated", "download", "--quiet", "--no-deps", "--dest", place, "toml"]
        environment = {"PATH": os.environ["PATH"], "HOME": place}
        try:
            return subprocess.run(command, env=environment, capture_output=True, timeout=120).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def has_apt():
    """Whether packages of Debian can be had: a small one."""
    with tempfile.TemporaryDirectory() as place:
        command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "virtualenv"]
        try:
            return subprocess.run(command, cwd=place, capture_output=True, timeout=120).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def missing_on_host(wanted):
    """What cases need and this host has not, and why."""
    path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    asked = {
        cases.PYPI: (has_pypi, "pip reaches no index"),
        cases.APT: (has_apt, "apt reaches no index"),
        cases.LAYERS: (ssh_node.has_layers, "the tests do not run as root, so a node's /usr is this machine's"),
    }
    lacks = {need: f"{need} is not on the PATH of builds" for need in wanted - set(asked) if not shutil.which(need, path=path)}
    return lacks | {need: why for need, (has, why) in asked.items() if need in wanted and not has()}


class Server:
    """`gatelog serve` on the site."""

    def __init__(self, site):
        self.log = open(site.site / "server.log", "ab")
        environment = {name: value for name, value in os.environ.items() if name != "GATELOG_ANSIBLE_PLAYBOOK"}
        self.process = subprocess.Popen([site.gatelog, "serve", "--dir", str(site.site)], env=environment,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.place, self.url = site.site / "server.json", None

    def get(self, path):
        return json.loads(self.text(path))

    def text(self, path):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def wait(self):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.url = json.loads(self.place.read_text())["url"]
                if self.get("/api/tenants"):
                    return
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.3)
        raise SystemExit(f"the server does not answer:\n{Path(self.log.name).read_text()[-4000:]}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def results(server, names, limit):
    """What the builds came to, by job; waits until all have ended."""
    end, told, before = time.monotonic() + limit, 0, 0.0
    while True:
        if server.process.poll() is not None:
            raise SystemExit(f"the server has ended:\n{Path(server.log.name).read_text()[-4000:]}")
        found = {build["job_name"]: build for build in server.get("/api/tenant/test/builds?limit=1000")}
        done = sum(1 for name in names if found.get(name, {}).get("result"))
        if done >= len(names) or time.monotonic() > end:
            return found
        if done != told and time.monotonic() - before > 30:
            print(f"{done} of {len(names)} builds have ended", flush=True)
            told, before = done, time.monotonic()
        time.sleep(1)


def console(site, build):
    if not build or "uuid" not in build:
        return ""
    attempts = sorted((site.site / "logs" / build["uuid"].replace("-", "")).glob("*/job-output.txt"))
    attempts = attempts or sorted((site.site / "logs").glob(f"{build['uuid']}/*/job-output.txt"))
    return attempts[-1].read_text(errors="replace") if attempts else ""


def why(build, text):
    """The reason in one line: what the build says, or the last thing that failed on its console."""
    failed = [line.split(" | ", 1)[-1] for line in text.splitlines()
              if re.search(r"fatal:|ERROR!|\[ERROR\]|FAILED!|UNREACHABLE!|^.*\| ERROR", line)]
    detail = (build or {}).get("error_detail") or (failed[-1] if failed else "")
    return " ".join(detail.split())[:240]


def judge(expect, case, result, text):
    """`as expected`, `better`, or `not as expected`."""
    if not result or NOT_RUN.search(text):
        return "not as expected"
    if expect == "works":
        return "as expected" if result == "SUCCESS" else "not as expected"
    if expect == "fails":
        return "as expected" if result == "FAILURE" and case.says in text else "not as expected"
    return "better" if result == "SUCCESS" else "as expected"


def show(rows):
    head = ("role or job", "node", "result", "", "reason")
    widths = [max(len(str(row[at])) for row in [head, *rows]) for at in range(4)]
    for row in [head, tuple("-" * width for width in widths) + ("------",), *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + "  " + row[4])


def prepare_ansible(gatelog, root, directory):
    """The Ansible that zuul-jobs is written for: the community package, not ansible-core alone."""
    place = Path(directory) / "install"
    place.mkdir()
    (place / "gatelog.toml").write_text(f"[executor]\nansible-root = {json.dumps(str(root))}\n")
    done = subprocess.run([gatelog, "ansible", "install", "11", "--dir", str(place)])
    if done.returncode != 0:
        skip("Ansible 11 cannot be installed here, see above")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--gatelog", required=True)
    parser.add_argument("--ansible-root", default=os.path.expanduser("~/.cache/gatelog/ansible"))
    parser.add_argument("--over", choices=["local", "ssh"], default="local")
    parser.add_argument("--results", help="a file for what came of each case, as JSON")
    parser.add_argument("--base", choices=["base", "bare"], default="base")
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--keep", help="a new directory that the site stays in")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if not shutil.which("bwrap"):
        skip("there is no bubblewrap")
    directory = arguments.keep or tempfile.mkdtemp(prefix="zj")
    if arguments.keep:
        os.mkdir(directory)
    try:
        return run(arguments, directory)
    finally:
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)


def run(arguments, directory):
    over_ssh = arguments.over == "ssh"
    if over_ssh and ssh_node.missing():
        skip(ssh_node.missing())
    source, commit = fetch(directory)
    prepare_ansible(arguments.gatelog, arguments.ansible_root, directory)
    chosen = [case for case in cases.CASES if not arguments.names or any(name in case.name for name in arguments.names)]
    needs = {need for case in chosen for need in case.wants(over_ssh)}
    if arguments.base == "base":
        needs.add(cases.RSYNC)
    lacks = missing_on_host(needs)
    skipped = [(case, next(lacks[need] for need in case.wants(over_ssh) if need in lacks))
               for case in chosen if set(case.wants(over_ssh)) & set(lacks)]
    left_out = {id(case) for case, _ in skipped}
    runs = [case for case in chosen if id(case) not in left_out]
    base = arguments.base
    if base == "base" and cases.RSYNC in lacks:
        print(f"the base job is left out: {lacks[cases.RSYNC]}, and prepare-workspace needs it")
        base = "bare"
    if not runs:
        skip("no case can run here")
    builds = real_site.grouped(runs, over_ssh)
    nodes = None
    if over_ssh:
        nodes = ssh_node.Nodes(Path(directory) / "nodes", [name for build in builds for name in build.machine_names()])
    site = real_site.Site(Path(directory), arguments.gatelog, arguments.ansible_root, arguments.slots, nodes)
    site.configure()
    files = site.projects(builds, base, source)
    print(f"zuul-jobs {commit[:12]}: {len(runs)} cases in {len(builds)} builds on {arguments.slots} slots, "
          f"{'over SSH' if over_ssh else 'on local nodes'}, with the job {base} under them", flush=True)
    found, errors = play(site, builds, files)
    rows, verdicts = judged(site, builds, found)
    if arguments.results:
        write_results(arguments, commit, runs, rows, skipped)
    return report([rows[case.name] for case in runs], verdicts, skipped, errors, arguments.over)


def play(site, builds, files):
    """Proposes the change that has all cases, and waits for their builds: these, and the errors of the configuration."""
    server = Server(site)
    try:
        server.wait()
        if site.nodes:
            site.nodes.start()
            site.nodes.let_in(server.text("/api/tenant/test/tenant-ssh-key/ssh.pub"))
        site.propose("app", files, "Run all cases\n\nSigned-off-by: Dana Developer <dana@example.org>")
        names = [build.name() for build in builds]
        found = results(server, names, PATIENCE * (1 + len(names) // site.slots))
        return found, server.get("/api/tenant/test/config-errors")
    finally:
        server.stop()
        if site.nodes:
            site.nodes.stop()


def judged(site, builds, found):
    """A row of the table for each case by its name, and how often there was which verdict."""
    rows, verdicts = {}, collections.Counter()
    for build in builds:
        came_to = found.get(build.name()) or {}
        text = console(site, came_to)
        for case in build.cases:
            part = build.part(case, text)
            result = result_of(build, case, came_to.get("result"), part)
            expect, reason = case.expected(bool(site.nodes))
            verdict = judge(expect, case, result, part)
            verdicts[verdict] += 1
            if verdict != "as expected":
                reason = f"expected: {expect}; {why(came_to, part)}"
            node = "+".join(["ssh"] * len(case.nodes) if site.nodes else case.nodes) or "none"
            rows[case.name] = (case.name, node, result or "NOT RUN", verdict, reason)
    return rows, verdicts


def result_of(build, case, result, part):
    """The result of a case: the build's, or, where that failed in the playbook of another, what its own part says."""
    if len(build.cases) == 1 or result != "FAILURE":
        return result
    if not part:
        return None
    return "FAILURE" if re.search(r"failed: [1-9]|unreachable: [1-9]", part) else "SUCCESS"


def write_results(arguments, commit, runs, rows, skipped):
    came_to = [(case, rows[case.name]) for case in runs]
    told = [{"name": case.name, "expect": case.expected(arguments.over == "ssh")[0], "result": row[2], "verdict": row[3],
             "reason": row[4]} for case, row in came_to]
    told += [{"name": case.name, "result": "skipped", "reason": reason} for case, reason in skipped]
    text = json.dumps({"commit": commit, "over": arguments.over, "results": told}, indent=1)
    Path(arguments.results).write_text(text + "\n")


def report(rows, verdicts, skipped, errors, over):
    show(rows + [(case.name, "+".join(case.nodes) or "none", "skipped", "", reason) for case, reason in skipped])
    if not any(row[2] == "SUCCESS" for row in rows) and errors:
        print("configuration errors:", *[str(error.get("error", error))[:400] for error in errors[:5]], sep="\n  ")
    for case, reason in skipped:
        print(f"SKIPPED zuul-jobs {case.name}: {reason}")
    good = verdicts["as expected"] + verdicts["better"]
    print(f"{over}: {good} of {len(rows)} as expected ({verdicts['better']} better), {len(skipped)} skipped")
    return 0 if good >= ENOUGH * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
