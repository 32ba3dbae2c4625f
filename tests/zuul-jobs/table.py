#!/usr/bin/env python3
"""Writes docs/zuul-jobs.md from the results of a run on local nodes and one over SSH.

usage: table.py LOCAL SSH > docs/zuul-jobs.md    (files that run.py --results wrote)
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import cases

# What is said of a case that a run did not have.
NOT_RUN = {"result": "not run", "reason": ""}

HEAD = """# Roles and jobs of zuul-jobs

What becomes of {roles} roles and {jobs} jobs of opendev/zuul-jobs (commit {commit}) in gatelog: unmodified, in a real site,
with the job `base` of a config project under each, on a local node and on a node over SSH. The base job has the roles of
OpenDev's: `emit-job-header`, `log-inventory`, `validate-host` and `prepare-workspace` before, `ensure-output-dirs`,
`fetch-output` and `upload-logs` after. A build that ends SUCCESS has run them too.

```
python3 tests/zuul-jobs/run.py --gatelog PROGRAM                all cases on local nodes
python3 tests/zuul-jobs/run.py --gatelog PROGRAM --over ssh     all cases over SSH
python3 tests/zuul-jobs/run.py --gatelog PROGRAM tox nox        those whose name has one of these words
```

`./dev test --long` runs both. zuul-jobs is cloned for a run, or comes from the Git repository that `GATELOG_ZUUL_JOBS`
names. `--results FILE` keeps what came of each case, and `tests/zuul-jobs/table.py LOCAL SSH` makes this page of two such
files. The cases are in `tests/zuul-jobs/cases.py`, with what is asserted of each after its roles have run.

- A **local node** is a directory of the executor's host in the build's sandbox: /usr and /etc are read-only, there is one
  user and no SSH server.
- A **node over SSH** is a real OpenSSH server (`tests/zuul-jobs/ssh_node.py`), named by the job's `host` and `fingerprint`.
  Its user is root, with /etc and /root of its own, and, where the tests run as root, /usr, /var and /opt that packages can
  be installed into. It has the network of its host, no other user, no services and no containers.
- A job names one host; where a role wants two, its playbook adds the second with `add_host`.

**works**: the build ends SUCCESS, with what is asserted of the role's effect. **refuses**: the role is called without what
its documentation demands, and ends with the message that it has for that. **cannot**: the role needs more of a node than
this one has; what is missing is said. **not as documented**: none of these. **skipped**: the host
of the run lacked something.

## Counts

| | works | refuses | as documented | cannot | not as documented | not run |
|---|---|---|---|---|---|---|
{counts}

## Each

| role or job | local node | over SSH | reason |
|---|---|---|---|
{lines}
"""


def word(result):
    """What is said of a result, by what was expected of it and what came."""
    if result["result"] in ("skipped", NOT_RUN["result"]):
        return result["result"]
    if result["verdict"] == "not as expected":
        return "not as documented"
    if result["result"] == "SUCCESS":
        return "works"
    return "refuses" if result["expect"] == "fails" else "cannot"


def reason(result):
    return "" if word(result) == "works" else result["reason"].replace("|", "\\|")


def count(title, results):
    words = [word(result) for result in results]
    works, refuses, ran = words.count("works"), words.count("refuses"), sum(1 for word in words if word not in ("skipped", NOT_RUN["result"]))
    share = f"{works + refuses} of {ran}, {100 * (works + refuses) // max(1, ran)} %"
    return f"| {title} | {works} | {refuses} | {share} | {words.count('cannot')} | {words.count('not as documented')} " \
           f"| {len(words) - ran} |"


def line(name, local, ssh):
    reasons = [reason(local), reason(ssh)]
    if reasons[0] and reasons[0] == reasons[1]:
        said = reasons[0]
    else:
        said = "; ".join(f"{way}: {text}" for way, text in zip(("local", "SSH"), reasons) if text)
    shown = f"job `{name.removeprefix('job ')}`" if name.startswith("job ") else f"`{name.split(' ')[0]}` {' '.join(name.split(' ')[1:])}"
    return f"| {shown.strip()} | {word(local)} | {word(ssh)} | {said} |"


def main():
    local, ssh = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    if local["commit"] != ssh["commit"] or (local["over"], ssh["over"]) != ("local", "ssh"):
        sys.exit("these are not results of both ways with one commit of zuul-jobs")
    by_name = [{result["name"]: result for result in way["results"]} for way in (local, ssh)]
    by_name = [{case.name: way.get(case.name, NOT_RUN) for case in cases.CASES} for way in by_name]
    names = [case.name for case in cases.CASES]
    jobs = [name for name in names if name.startswith("job ")]
    roles = [name for name in names if name not in jobs]
    counts = [count(f"{what}, {way}", [results[name] for name in chosen]) for way, results in zip(("local", "over SSH"), by_name)
              for what, chosen in (("roles", roles), ("jobs", jobs))]
    lines = [line(name, by_name[0][name], by_name[1][name]) for name in names]
    different = {name.split(" ")[0] for name in roles}
    print(HEAD.format(roles=len(different), jobs=len(jobs), commit=local["commit"][:12], counts="\n".join(counts),
                      lines="\n".join(lines)), end="")


if __name__ == "__main__":
    main()
