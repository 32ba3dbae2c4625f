#!/usr/bin/env python3
"""Asks a real server everything its OpenAPI document says it may be asked, by schemathesis.

The site of the demo is made, told its story and served again, with an authenticator, so that the routes of operators are
there. Each route is asked with what the document allows and with what it does not: no answer may be of the kind "something
inside is wrong", and every answer must be what the document says it is: its status, its type, its JSON.

    tests/api/run.py --gatelog target/debug/gatelog --cache DIR [--examples N] [--seed N]

Exits with 1 where an answer is otherwise, and with 2 (SKIPPED) where schemathesis or Ansible cannot be had.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

# A newer one may look for more: it is taken on purpose.
SCHEMATHESIS = "4.32.5"
TENANT = "demo"
AUTH = """
[auth.test]
driver = "HS256"
issuer-id = "test"
client-id = "gatelog"
secret = "a secret of this test alone, which is over with it"
allow-authz-override = true
max-validity-time = 36000
"""
# Answers that go on, and a route that is no HTTP once it has begun, are asked by tests of their own.
ENDLESS = ["/api/events", "/api/tenant/{tenant}/status/stream", "/api/tenant/{tenant}/console-stream"]
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "unsupported_method"]


def skip(why):
    print(f"SKIPPED api: {why}")
    raise SystemExit(2)


def schemathesis(cache):
    """The program, installed into a directory of its own."""
    place = cache / f"schemathesis-{SCHEMATHESIS}"
    program = place / "bin" / "schemathesis"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        install = [str(place / "bin" / "pip"), "install", "--quiet", "--no-input", "--disable-pip-version-check",
                   f"schemathesis=={SCHEMATHESIS}"]
        for command in ([sys.executable, "-m", "venv", str(place)], install):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                skip(f"schemathesis {SCHEMATHESIS} cannot be installed: {' '.join(last)}")
        (place / "ready").touch()
    return program


def get(url, token=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.loads(answer.read())


class Server:
    """`gatelog serve` on a site."""

    def __init__(self, gatelog, site):
        self.log = open(site / "server.log", "ab")
        self.site, self.url = site, None
        (site / "server.json").unlink(missing_ok=True)
        self.process = subprocess.Popen([gatelog, "serve", "--dir", str(site)], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)

    def __enter__(self):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                url = json.loads((self.site / "server.json").read_text())["url"]
                if get(f"{url}/api/tenants"):
                    self.url = url
                    return self
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.3)
        self.__exit__()
        raise SystemExit(f"the server does not answer:\n{(self.site / 'server.log').read_text()[-4000:]}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def settings(server, token):
    """What stands in the segments of paths: what there is, so that most questions are answered."""
    newest = get(f"{server.url}/api/tenant/{TENANT}/builds?limit=1&complete=true", token)[0]
    project = get(f"{server.url}/api/tenant/{TENANT}/projects", token)[0]["name"]
    # Whoever follows, or waits for an event, waits: what they are told is for tests that know when it comes.
    lines = ["[parameters]", f'"path.tenant" = "{TENANT}"', f'"path.project" = "{project}"', '"query.after" = 1',
             '"query.follow" = false', ""]
    for kind, uuid in (("build", newest["uuid"]), ("buildset", newest["buildset"]["uuid"])):
        lines += ["[[operations]]", f'include-path-regex = "/{kind}/"', f'parameters = {{ "path.uuid" = "{uuid}" }}', ""]
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gatelog", required=True)
    arguments.add_argument("--cache", type=Path, required=True)
    arguments.add_argument("--examples", type=int, default=40, help="how many questions of each kind at each route")
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    program = schemathesis(arguments.cache)
    with tempfile.TemporaryDirectory(prefix="gatelog-api-") as place:
        site = Path(place) / "site"
        told = subprocess.run([arguments.gatelog, "demo", "--headless", "--dir", str(site)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if told.returncode:
            if "ansible" in told.stderr.lower():
                skip(f"the demo cannot be played: {told.stderr.strip().splitlines()[-1]}")
            raise SystemExit(f"the demo failed:\n{told.stdout[-2000:]}{told.stderr[-2000:]}")
        with open(site / "gatelog.toml", "a") as toml:
            toml.write(AUTH)
        make = [arguments.gatelog, "create-auth-token", "--dir", str(site), "--auth-config", "test", "--user", "ann",
                "--tenant", TENANT, "--expires-in", "36000"]
        token = subprocess.run(make, check=True, capture_output=True, text=True).stdout.split()[-1]
        with Server(arguments.gatelog, site) as server:
            config = Path(place) / "schemathesis.toml"
            config.write_text(settings(server, token))
            command = [str(program), "--config-file", str(config), "run", f"{server.url}/api/openapi.json",
                       "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS),
                       "--max-examples", str(arguments.examples), "--seed", str(arguments.seed), "--phases",
                       "examples,coverage,fuzzing", "--request-timeout", "60", "--no-color",
                       "--generation-database", "none"]
            for path in ENDLESS:
                command += ["--exclude-path", path]
            environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            status = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, cwd=place).returncode
            health = get(f"{server.url}/api/health")
        if health["state"] != "well":
            print(f"afterwards not all is well: {json.dumps(health, indent=2)}")
            status = status or 1
        raise SystemExit(1 if status else 0)


if __name__ == "__main__":
    main()
