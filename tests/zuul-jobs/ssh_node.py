"""Nodes with a real OpenSSH server, one for each case: root's home of its own, and a machine's directories that can be written.

A node is a network address of loopback and a directory. Its sshd runs in a user namespace (bubblewrap) as an ordinary user,
because a server that is root there would have to become another user, which a namespace with one user does not allow. The
login shell of that user is `enter`, which makes the session root in a namespace below it. So whoever logs in as root is
root: /etc, /root and /tmp are the node's own and outlive a session. Where the tests run as root, /usr, /var and /opt are
layers above those of this machine, which packages can be installed into; else they are read-only.

sshd is this machine's, or where `./dev test` has unpacked Debian's package: ${GATELOG_CACHE:-~/.cache/gatelog}/openssh.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

UID = "1000"
PATIENCE = 30
# Above these a node has a layer of its own, where the tests run as root.
LAYERED = ("usr", "var", "opt")

# The session: root in a namespace below the server's. The node's own /etc takes the place of the one that the server sees.
ENTER = """#!/bin/sh
export HOME=/root USER=root LOGNAME=root SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec bwrap --unshare-user --uid 0 --gid 0 --cap-add ALL --dev-bind / / --bind @PLACE@/etc /etc --chdir /root /bin/bash "$@"
"""

SETTINGS = """ListenAddress @ADDRESS@
Port @PORT@
HostKey @HOME@/host_key
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
MaxSessions 100
MaxStartups 200
AuthorizedKeysFile /root/.ssh/authorized_keys
PrintMotd no
"""


def openssh():
    """Where an OpenSSH server is installed or unpacked; None where there is none."""
    cache = os.environ.get("GATELOG_CACHE") or os.path.expanduser("~/.cache/gatelog")
    places = [Path(cache) / "openssh", Path("/")]
    return next((place for place in places if (place / "usr/sbin/sshd").exists()), None)


def missing():
    """Why there can be no nodes over SSH here; empty where there can be."""
    if not openssh():
        return "there is no OpenSSH server: ./dev setup unpacks one"
    for program in ("ssh-keygen", "ssh-keyscan", "ssh-agent", "bwrap", "unshare"):
        if not shutil.which(program):
            return f"there is no {program}"
    return ""


def has_layers():
    """Whether nodes have a /usr that can be written: only root owns what lies in this machine's."""
    return os.geteuid() == 0


class Node:
    """One host: `root@address:port`, in a directory."""

    def __init__(self, home, name, address, port):
        self.home, self.place, self.address, self.port = home, home / name, address, port
        self.server = None

    def host(self):
        return f"root@{self.address}:{self.port}"

    def prepare(self, programs):
        # What this user cannot read of /etc (shadow) the node has not.
        self.place.mkdir(parents=True)
        subprocess.run(["cp", "-R", "--preserve=mode,links", "/etc", str(self.place / "etc")], stderr=subprocess.DEVNULL)
        for name in ("root/.ssh", "openssh"):
            (self.place / name).mkdir(parents=True)
        (self.place / "root/.ssh").chmod(0o700)
        for name in LAYERED:
            for part in ("above", "work", "seen"):
                (self.place / part / name).mkdir(parents=True)
        etc = self.place / "etc"
        # Packages look their users up, so those of this machine stay.
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n" + others(etc / "passwd"))
        (etc / "shadow").unlink(missing_ok=True)
        self.write("etc/shadow", "root:*:19000:0:99999:7:::\n")
        if (etc / "apt/apt.conf.d").is_dir():
            # apt drops to another user for downloads, and there is none.
            self.write("etc/apt/apt.conf.d/99-node", 'APT::Sandbox::User "root";\n')
        (etc / "ssh").mkdir(exist_ok=True)
        shutil.copyfile(self.home / "host_key.pub", etc / "ssh/ssh_host_ed25519_key.pub")
        # What the server sees: its own user is called root.
        self.write("passwd", f"root:x:{UID}:{UID}:root:/root:{self.place}/enter\n")
        self.write("group", f"root:x:{UID}:\n")
        # Not locked, which it were with an exclamation mark (or without a line of its own).
        self.write("shadow", "root:*:19000:0:99999:7:::\n")
        self.write("enter", ENTER.replace("@PLACE@", str(self.place)))
        (self.place / "enter").chmod(0o755)
        settings = SETTINGS.replace("@ADDRESS@", self.address).replace("@PORT@", str(self.port)).replace("@HOME@", str(self.place))
        (self.place / "host_key").write_bytes((self.home / "host_key").read_bytes())
        (self.place / "host_key").chmod(0o600)
        self.write("sshd_config", settings + self.helpers(programs))

    def write(self, name, text):
        (self.place / name).write_text(text)

    def root_of(self, programs):
        """Where the node sees the server's programs."""
        return programs if programs == Path("/") else self.place / "openssh"

    def helpers(self, programs):
        """Settings for the programs beside the server; servers since OpenSSH 9.8 have more of them."""
        settings = [("SshdSessionPath ", "sshd-session"), ("SshdAuthPath ", "sshd-auth"), ("Subsystem sftp ", "sftp-server")]
        below = "usr/lib/openssh"
        return "".join(f"{setting}{self.root_of(programs) / below / name}\n"
                       for setting, name in settings if (programs / below / name).exists())

    def command(self, programs):
        place = str(self.place)
        root = self.root_of(programs)
        sandbox = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session",
                   "--uid", UID, "--gid", UID, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for name in ("tmp", "home", "run", "srv"):
            sandbox += ["--tmpfs", f"/{name}"]
        if has_layers():
            for name in LAYERED:
                sandbox += ["--bind", f"{place}/seen/{name}", f"/{name}"]
        # What apt writes to belongs to a user that the node has not.
        for name in ("/var/tmp", "/var/log", "/var/cache/apt", "/var/lib/apt/lists/partial"):
            if os.path.isdir(name):
                sandbox += ["--tmpfs", name]
        sandbox += ["--bind", place, place, "--bind", f"{place}/root", "/root", "--bind", f"{place}/etc", "/etc"]
        for name in ("passwd", "group", "shadow"):
            sandbox += ["--ro-bind", f"{place}/{name}", f"/etc/{name}"]
        if programs != Path("/"):
            sandbox += ["--ro-bind", str(programs), str(root)]
            libraries = [str(root / "usr/lib" / path.name) for path in (programs / "usr/lib").glob("*-linux-gnu")]
            sandbox += ["--setenv", "LD_LIBRARY_PATH", ":".join(libraries)]
        sandbox += ["--chdir", "/root", "--", str(root / "usr/sbin/sshd"), "-D", "-f", f"{place}/sshd_config", "-E", f"{place}/sshd.log"]
        if not has_layers():
            return sandbox
        mounts = "".join(f"mount -t overlay overlay -o lowerdir=/{name},upperdir={place}/above/{name},"
                         f"workdir={place}/work/{name},userxattr {place}/seen/{name} && " for name in LAYERED)
        return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh", *sandbox]

    def start(self, programs):
        with open(self.place / "start.log", "ab") as log:
            self.server = subprocess.Popen(self.command(programs), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           env={"PATH": os.environ["PATH"]})

    def wait(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.server.poll() is None:
            try:
                with socket.create_connection((self.address, self.port), timeout=5) as connection:
                    if connection.recv(4) == b"SSH-":
                        return
            except OSError:
                pass
            time.sleep(0.05)
        said = "".join(path.read_text() for path in self.place.glob("*.log"))
        raise SystemExit(f"the SSH server of {self.place.name} does not start:\n{said[-2000:]}")

    def let_in(self, line):
        with open(self.place / "root/.ssh/authorized_keys", "a") as file:
            file.write(line.strip() + "\n")


class Nodes:
    """The nodes of a run, by name."""

    def __init__(self, directory, names):
        self.home = Path(directory)
        self.home.mkdir(parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "node", "-f", str(self.home / "host_key")], check=True)
        said = subprocess.run(["ssh-keygen", "-l", "-E", "sha256", "-f", str(self.home / "host_key.pub")],
                              check=True, capture_output=True, text=True)
        self.fingerprint = said.stdout.split()[1]
        # Ansible takes a node called 127.0.0.1 for localhost, so each has another address of loopback.
        addresses = (f"127.7.{number // 250}.{number % 250 + 1}" for number in range(len(names)))
        port = free_port()
        self.nodes = {name: Node(self.home, name, address, port) for name, address in zip(names, addresses)}

    def start(self):
        programs = openssh()
        for node in self.nodes.values():
            node.prepare(programs)
            node.start(programs)
        for node in self.nodes.values():
            node.wait()

    def let_in(self, line):
        for node in self.nodes.values():
            node.let_in(line)

    def stop(self):
        for node in self.nodes.values():
            if node.server:
                # Everything in its namespace ends with it.
                node.server.kill()
                node.server.wait()


def others(passwd):
    """The lines of a file of users but root's."""
    return "".join(line for line in passwd.read_text().splitlines(keepends=True) if not line.startswith("root:"))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
