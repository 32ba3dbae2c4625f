# SPDX-License-Identifier: Apache-2.0
"""Runs ansible-playbook, either in a process of its own or in one that is forked from a server with Ansible loaded.

    gatelog_playbook.py run      reads one run (JSON) from standard input, to its end, and becomes that run
    gatelog_playbook.py serve    is the fork server; standard input is a Unix socket that the executor holds

Loading Ansible takes longer than most playbooks do. The server loads it once, before it has heard of any build, and
never runs anything itself. For each run the executor sends three descriptors: the pipe of the console, a socket on
which the run follows, and the callback's channel. The server forks; the child (`enter`) enters the namespaces of a sandbox that bubblewrap
has made for this run alone, and forks once more: only that second child (`become`) is inside the sandbox, and from
there on all is as in a run of its own. The first child stays outside, waits, and tells how the run ended.
"""

import ast
import atexit
import base64
import ctypes
import errno
import fcntl
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import pickle
import resource
import runpy
import signal
import socket
import struct
import sys
import tempfile
import traceback
import types

# Namespaces in the order in which they are entered. The mount namespace is the last of these: after it, paths are the
# sandbox's. The kind is what setns(2) is told.
NAMESPACES = (("cgroup", 0x02000000), ("ipc", 0x08000000), ("uts", 0x04000000), ("net", 0x40000000),
              ("pid", 0x20000000), ("mnt", 0x00020000))
USER_NAMESPACE = 0x10000000
NS_GET_USERNS = 0xB701
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 15, 22, 24, 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
KEYCTL_JOIN_SESSION_KEYRING = 1
MOST_DESCRIPTORS = 1 << 16
# The most bytes of a run that are read.
LONGEST_RUN = 64 << 20

libc = ctypes.CDLL(None, use_errno=True)

# What a run needs that is not loaded by the command's own module.
MODULES = """
    ansible.executor.action_write_locks ansible.executor.interpreter_discovery ansible.executor.module_common
    ansible.executor.playbook_executor ansible.executor.process.worker ansible.executor.task_executor
    ansible.executor.task_queue_manager ansible.module_utils.connection ansible.module_utils.facts
    ansible.module_utils.facts.ansible_collector ansible.module_utils.facts.default_collectors
    ansible.playbook.handler_task_include ansible.playbook.included_file ansible.playbook.role.include
    ansible.playbook.role_include ansible.utils._junit_xml ansible.utils.hashing concurrent.futures.thread
    multiprocessing.pool multiprocessing.popen_fork multiprocessing.synchronize pprint pty ssl tomllib
    xml.etree.ElementTree xml.dom.minidom
""".split()
# Plugins of Ansible's own that most runs load: by kind, the directory below ansible/plugins.
PLUGINS = {
    "action": "assert_ command copy debug fail fetch file gather_facts include_vars normal set_fact shell stat template",
    "become": "runas su sudo",
    "cache": "jsonfile memory",
    "callback": "default junit minimal oneline tree",
    "connection": "local paramiko_ssh psrp ssh winrm",
    "filter": "core encryption mathstuff urls urlsplit",
    "inventory": "yaml",
    "lookup": "dict env file fileglob first_found items pipe",
    "shell": "cmd powershell sh",
    "strategy": "free linear",
    "test": "core files mathstuff uri",
    "vars": "host_group_vars",
}
# gatelog's own that each run loads.
OWN_PLUGINS = {"callback": "gatelog_stream", "connection": "local", "vars": "gatelog_secrets"}


# -- the kernel ----------------------------------------------------------------------------------


def check(result, doing):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (doing, os.strerror(number)))


def prctl(option, value):
    check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl %d" % option)


def identity(descriptor):
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def join(holder, kernel):
    """Enters the namespaces of this process. Children are in its PID namespace, this process itself is not. Gives the
    names of those limits of the kernel that could not be set there."""
    def opened(process):
        names = [name for name, _ in NAMESPACES] + ["user"]
        return {name: os.open("/proc/%s/ns/%s" % (process, name), os.O_RDONLY | os.O_CLOEXEC) for name in names}

    own, there = opened("self"), opened(holder)
    # The user namespace that the others belong to; bubblewrap makes a second one below it, which owns nothing.
    owner = fcntl.ioctl(there["mnt"], NS_GET_USERNS)
    current = identity(own["user"])
    if identity(owner) != current:
        check(libc.setns(owner, USER_NAMESPACE), "cannot enter the sandbox's user namespace")
        current = identity(owner)
    refused = []
    for name, kind in NAMESPACES:
        if name == "mnt":
            refused = limit_kernel(kernel)
        if identity(there[name]) != identity(own[name]):
            check(libc.setns(there[name], kind), "cannot enter the sandbox's namespace %s" % name)
    if identity(there["user"]) != current:
        check(libc.setns(there["user"], USER_NAMESPACE), "cannot enter the sandbox's inner user namespace")
    os.chdir("/")
    return refused


def limit_kernel(limits):
    """Writes what the namespaces that were entered may have. The kernel shows each process those of its own namespaces."""
    refused = []
    for name, value in limits:
        try:
            with open("/proc/sys/" + name, "w") as file:
                file.write(value)
        except OSError as error:
            refused.append("%s: %s" % (name, error.strerror))
    return refused


def drop_capabilities():
    """All of them, also those that a program might get back when it is started."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                break
            check(-1, "cannot give up capability %d" % capability)
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)), "cannot give up capabilities")


def leave_session_keyring():
    """A session keyring of its own; keys of the executor's session stay out of reach."""
    number = KEYCTL.get(os.uname().machine)
    if number is not None:
        # A kernel without keyrings has none to leave.
        libc.syscall(ctypes.c_long(number), ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), None)


def filter_system_calls(encoded):
    """From here on the kernel refuses what this program says, to this process and all it starts."""
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    code = base64.b64decode(encoded)
    held = ctypes.create_string_buffer(code, len(code))
    program = Program(len(code) // 8, ctypes.addressof(held))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "cannot filter system calls")


def restrict(run):
    """What holds for the run and all it starts, beyond namespaces: both ways to run end here."""
    if run.get("sandboxed"):
        leave_session_keyring()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        # The memory of this process holds secrets: no other process of the build may look into it. What it starts is
        # not concerned.
        prctl(PR_SET_DUMPABLE, 0)
    if run.get("processes"):
        # Counted by the kernel for each user namespace, so it is set inside the sandbox.
        resource.setrlimit(resource.RLIMIT_NPROC, (run["processes"], run["processes"]))
    if run.get("filter"):
        filter_system_calls(run["filter"])


# -- one run -------------------------------------------------------------------------------------


# Where the callback's channel is in the process of a run.
CHANNEL = 3


def keep_channel(channel):
    """Only the channel stays open besides standard input, output and error, and nothing that this process starts gets it."""
    if channel != CHANNEL:
        os.dup2(channel, CHANNEL)
    os.set_inheritable(CHANNEL, False)
    os.closerange(CHANNEL + 1, MOST_DESCRIPTORS)
    # The executor believes the process that speaks first, which is this one: nothing of the job is loaded yet.
    os.write(CHANNEL, b"h")


def set_up(run):
    """The environment and the secrets of a run, in a process that has not used any of them yet."""
    os.environ.clear()
    os.environ.update(run["environment"])
    tempfile.tempdir = None
    os.chdir(run["directory"])
    # Found by gatelog_secrets, the plugin that gives them to Ansible, and by gatelog_console.
    held = types.ModuleType("gatelog_held")
    held.secrets, held.channel = run.pop("secrets", None), CHANNEL
    sys.modules["gatelog_held"] = held
    sys.argv = run["arguments"]
    # In the place of this program's own directory, as if Python had been started with that one.
    own, place = os.path.dirname(os.path.abspath(__file__)), os.path.dirname(sys.argv[0])
    sys.path[:] = [place if path == own else path for path in sys.path]


def run_here():
    """Runs what standard input says, in this process."""
    with socket.socket(fileno=os.dup(0)) as gate:
        _, descriptors, _, _ = socket.recv_fds(gate, 1, 1)
        with gate.makefile("rb") as stream:
            run = json.loads(stream.read(LONGEST_RUN))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    keep_channel(descriptors[0])
    set_up(run)
    restrict(run)
    become_ansible_playbook()


def become_ansible_playbook():
    """Runs the program that the command line names, which is a Python script, in this process."""
    runpy.run_path(sys.argv[0], run_name="__main__")


# -- the server ----------------------------------------------------------------------------------


class Stash:
    """Plugins that are loaded already, by name and file.

    Ansible loads a plugin from a file under a name that says nothing of the file: a role may have a plugin of the same
    name. So those that the server has loaded are no modules until Ansible asks for exactly their file. The same holds for
    what their documentation says of their options.
    """

    def __init__(self):
        self.modules, self.options = {}, {}

    def load(self):
        known = set(sys.modules)
        for kind, names in PLUGINS.items():
            for name in names.split():
                self.attempt("ansible.plugins.%s.%s" % (kind, name))
        for name in sorted(set(sys.modules) - known):
            place = getattr(sys.modules[name], "__file__", None)
            # Packages stay: they are the places where plugins are.
            if name.startswith("ansible.plugins.") and place and not place.endswith("__init__.py"):
                self.modules[name, place] = sys.modules.pop(name)
        for kind, names in OWN_PLUGINS.items():
            for name in names.split():
                self.load_own(kind, name)

    def attempt(self, name):
        try:
            importlib.import_module(name)
        except Exception:
            # Another version of Ansible has no such plugin. A run that needs it says what is wrong.
            sys.modules.pop(name, None)

    def load_own(self, kind, name):
        """One of gatelog's own, as Ansible would load it."""
        place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), kind, name + ".py")
        full = "ansible.plugins.%s.%s" % (kind, name)
        spec = importlib.util.spec_from_file_location(full, place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.modules[full, place] = module

    def learn_options(self, loaders):
        """What the documentation of each plugin says of its options."""
        for (full, place), module in self.modules.items():
            _, _, kind, name = full.split(".")
            loader = getattr(loaders, kind + "_loader", None)
            if loader is None:
                continue
            # Another's of the same name would be taken for its own.
            definitions = loaders.C.config._plugins.setdefault(kind, {})
            definitions.pop(name, None)
            loader._load_config_defs(name, module, place)
            self.options[full, place] = kind, name, definitions.pop(name, None)

    def install(self, loaders):
        stash, options, constants = self.modules, self.options, loaders.C
        original = loaders.PluginLoader._load_module_source

        def load_module_source(self, name, path):
            full = name if name.startswith("ansible_collections.") else "%s.%s" % (self.package, name)
            key = full, os.fsdecode(path)
            if key in stash and sys.modules.setdefault(full, stash[key]) is stash[key] and key in options:
                kind, name_of_options, found = options[key]
                if found is not None:
                    constants.config._plugins.setdefault(kind, {}).setdefault(name_of_options, found)
            return original(self, name, path)

        loaders.PluginLoader._load_module_source = load_module_source


class Remembered:
    """Results of what Ansible works out anew in each run from files of its own; by the content of these files.

    A job's file with other content is worked out as ever. Whoever asks gets a copy.
    """

    def __init__(self):
        self.results = {}

    def remember(self, function, key, *arguments):
        self.results[key] = pickle.dumps(function(*arguments))

    def get(self, key):
        known = self.results.get(key)
        return None if known is None else pickle.loads(known)


def digest(text):
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")).digest()


def remember_settings():
    """The definitions of Ansible's settings, and where its built-in names have moved to: two large YAML files."""
    from ansible.config import manager
    from ansible.utils.collection_loader import _collection_finder as finder

    remembered, read, parse = Remembered(), manager.ConfigManager._read_config_yaml_file, finder._meta_yml_to_dict
    definitions = os.path.join(os.path.dirname(manager.__file__), "base.yml")
    moved = os.path.join(os.path.dirname(os.path.dirname(manager.__file__)), "config",
                         "ansible_builtin_runtime.yml")
    remembered.remember(read, definitions, None, definitions)
    with open(moved, "rb") as file:
        text = file.read()
    remembered.remember(parse, digest(text), text, ("ansible.builtin", "runtime.yml"))

    def read_config_yaml_file(self, path):
        known = remembered.get(path)
        return read(self, path) if known is None else known

    def meta_yml_to_dict(text, content):
        known = remembered.get(digest(text))
        return parse(text, content) if known is None else known

    manager.ConfigManager._read_config_yaml_file = read_config_yaml_file
    finder._meta_yml_to_dict = meta_yml_to_dict


def remember_imports():
    """What the libraries that most modules are sent with import: looked for with a parser for each task."""
    from ansible.executor import module_common
    from ansible.module_utils import basic

    finder, modules, known = module_common.ModuleDepFinder, {}, {}

    class Source:
        """A text that is parsed when somebody needs more than what it imports."""

        def __init__(self, text, key):
            self.text, self.key = text, key

    def compile_source(text, name, mode, flags=0, **more):
        key = digest(text)
        if key in modules and mode == "exec" and flags == ast.PyCF_ONLY_AST:
            return Source(text, key)
        return compile(text, name, mode, flags, **more)

    original = finder.__init__

    def find(self, name, tree, is_package=False, *arguments, **options):
        if isinstance(tree, Source):
            found = known.get((name, tree.key, is_package))
            if found is not None:
                self.module_fqn, self.is_pkg_init, self._tree = name, is_package, None
                self.submodules, self.optional_imports = set(found[0]), set(found[1])
                return
            tree = compile(tree.text, "<unknown>", "exec", ast.PyCF_ONLY_AST)
        original(self, name, tree, is_package, *arguments, **options)

    root = os.path.dirname(basic.__file__)
    for place, name, is_package in sorted(library_files(root)):
        with open(place, "rb") as file:
            text = file.read()
        found = finder(name, compile(text, "<unknown>", "exec", ast.PyCF_ONLY_AST), is_package)
        if set(vars(found)) - {"_tree", "_visit_map", "module_fqn", "is_pkg_init", "submodules", "optional_imports"}:
            # Another version of Ansible wants to know more.
            return
        modules[digest(text)] = True
        known[name, digest(text), is_package] = (found.submodules, found.optional_imports)
    module_common.compile, finder.__init__ = compile_source, find


def library_files(root):
    """File, module and whether it is a package, of the libraries that nearly each module is sent with."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in ("facts", "csharp", "powershell", "__pycache__")]
        package = "ansible.module_utils" + folder[len(root):].replace(os.sep, ".")
        for name in files:
            if name == "__init__.py":
                yield os.path.join(folder, name), package, True
            elif name.endswith(".py"):
                yield os.path.join(folder, name), package + "." + name[:-3], False


def preload():
    """Loads what runs need, and nothing that depends on one of them."""
    import ansible.cli.playbook  # noqa: F401
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    import ansible.plugins.loader as loaders
    stash = Stash()
    stash.load()
    stash.install(loaders)
    for save_time in (lambda: stash.learn_options(loaders), remember_settings, remember_imports):
        try:
            save_time()
        except Exception:
            # Another version of Ansible works in another way: it takes its time.
            traceback.print_exc()
    # The garbage collector never looks at what is there now: its marks would make copies of all pages.
    gc.collect()
    gc.freeze()


def configure_again():
    """Reads Ansible's configuration as if it had not been loaded before, and hands it to whoever holds a part of it."""
    import ansible.constants as constants
    import ansible.plugins.loader as loaders
    from ansible.utils.path import cleanup_tmp_file

    home = constants.ANSIBLE_HOME
    # The server's own temporary directory is the server's to remove.
    atexit.unregister(cleanup_tmp_file)
    importlib.reload(constants)
    for loader in vars(loaders).values():
        if isinstance(loader, loaders.PluginLoader):
            loader.config = [path.replace(home, constants.ANSIBLE_HOME) for path in loader.config or []]


def read_run(line):
    """The run, once the executor has put its limits on this process. `None`: it has changed its mind."""
    length = line.recv(8, socket.MSG_WAITALL)
    if len(length) < 8:
        return None
    left = min(struct.unpack("<Q", length)[0], LONGEST_RUN)
    parts = []
    while left:
        part = line.recv(min(left, 1 << 20))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts))


def tell(line, message):
    line.sendall(json.dumps(message).encode() + b"\n")


def enter(output, line, channel):
    """The first child. Gives the run in the second one, and `None` in the first once all is over."""
    run = read_run(line)
    if run is None:
        return None
    try:
        refused = join(run["holder"], run["kernel"])
        pid = os.fork()
    except OSError as error:
        tell(line, {"refused": str(error)})
        return None
    if pid == 0:
        return become(run, output, line, channel)
    tell(line, {"started": refused})
    os.close(output)
    os.close(channel)
    drop_capabilities()
    tell(line, {"status": os.waitpid(pid, 0)[1]})
    return None


def become(run, output, line, channel):
    """The second child, inside the sandbox: from here on it is as if it had been started there."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # What `ps` and `pkill` show and find, as if it had been started by itself.
        libc.prctl(PR_SET_NAME, b"ansible-playboo", 0, 0, 0)
        line.close()
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        keep_channel(channel)
        drop_capabilities()
        set_up(run)
        restrict(run)
        configure_again()
    except Exception as error:
        sys.stderr.write("gatelog: the playbook cannot be started: %s\n" % error)
        sys.stderr.flush()
        os._exit(125)
    return run


def in_child(descriptors):
    """A run in the process that becomes it; the one that only waits ends here."""
    run = None
    try:
        output, line, channel = descriptors
        run = enter(output, socket.socket(fileno=line), channel)
    finally:
        if run is None:
            os._exit(0)
    return run


def reap():
    """Takes notice of children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def serve():
    """Forks for each message that comes with three descriptors, until the executor is gone. Gives a run in its process."""
    control = socket.socket(fileno=os.dup(0))
    preload()
    control.sendall(b"ready\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 3)
        if not message:
            return None
        reap()
        try:
            pid = os.fork()
        except OSError as error:
            control.sendall(("cannot fork: %s\n" % error).encode())
        else:
            if pid == 0:
                control.close()
                return in_child(descriptors)
            control.sendall(b"%d\n" % pid)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        if serve() is not None:
            become_ansible_playbook()
    else:
        run_here()
