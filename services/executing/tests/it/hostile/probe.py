# SPDX-License-Identifier: Apache-2.0
"""One attack after another, each in a process of its own; of each a line says what it got or how it was refused.

    probe.py TARGETS [NAME…]     TARGETS is a file of JSON that says where the host's canaries are

The same program runs in the sandbox, where it must get nothing, and on the host, where it must get all: an attack that
cannot succeed anywhere proves nothing.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import traceback

libc = ctypes.CDLL(None, use_errno=True)
with open(sys.argv[1]) as targets:
    T = json.load(targets)
PROBES = {}


def probe(function):
    PROBES[function.__name__.replace("_", "-")] = function
    return function


class Nothing(Exception):
    """The attack ran to its end and came away with nothing."""


def found(things):
    if not things:
        raise Nothing()
    return things


def syscall(number, *arguments):
    """A system call by its number on x86-64."""
    if os.uname().machine != "x86_64":
        raise NotImplementedError("system calls are known by their numbers on x86_64 alone")
    words = [argument if isinstance(argument, (bytes, ctypes.Array)) or argument is None else ctypes.c_long(argument)
             for argument in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read(4096).decode("utf-8", "replace")


def write(path, text, flags=os.O_WRONLY):
    descriptor = os.open(path, flags)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    return "written"


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def name_of(pid):
    try:
        return read("/proc/%d/comm" % pid).strip(), read("/proc/%d/cmdline" % pid)
    except OSError:
        return "", ""


def ansibles():
    """Ansible's own processes, which hold the playbook's secrets."""
    holds = ("bwrap", "gatelog-hold")
    mine = [pid for pid in processes()
            for comm, line in [name_of(pid)] if comm not in holds and ("gatelog_playbook" in line or "ansible-playbook" in line)]
    assert mine, "there is no process of Ansible's"
    return mine


def each(pids, technique):
    """The technique on each of these processes; it must work on a child of this one."""
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        technique(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    refusal = None
    for pid in pids:
        try:
            return [pid, technique(pid)]
        except OSError as error:
            refusal = error
    raise refusal


# -- files of the host -----------------------------------------------------------------------------


@probe
def read_shadow():
    return read("/etc/shadow")


@probe
def read_keyring():
    return read(T["folder"] + "/keyring")


@probe
def read_keyring_through_a_link():
    os.symlink(T["folder"] + "/keyring", "link")
    return read("link")


@probe
def read_keyring_through_init():
    return read("/proc/1/root" + T["folder"] + "/keyring")


@probe
def read_keyring_by_climbing():
    return read("../" * 40 + T["folder"] + "/keyring")


@probe
def read_home_of_the_user():
    return found([name for name in T["home_names"] if os.path.lexists(os.path.join(T["home"], name))])


@probe
def read_executor_state():
    own = os.path.basename(T["job"])
    there = T["folder"] + "/executor"
    names = [name for name in os.listdir(there) if not name.startswith("plugins-") and name != "builds"]
    return found(names + [name for name in os.listdir(there + "/builds") if name != own])


@probe
def read_another_build():
    return read(T["folder"] + "/executor/builds/another-1/work/report")


@probe
def read_kept_consoles():
    return os.listdir(T["folder"] + "/logs")


@probe
def read_own_owner_file():
    return read(T["job"] + "/owner.json")


@probe
def read_run():
    return found([name for name in os.listdir("/run") if name != "gatelog-agent"])


@probe
def read_by_file_handle():
    # Handles name files by number, past all directories: the root of this file system is number 2 in most.
    handle = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2) + bytes(120))
    place = os.open("/usr", os.O_RDONLY)
    return syscall(304, place, handle, os.O_RDONLY)


@probe
def read_kernel_log():
    buffer = ctypes.create_string_buffer(4096)
    return syscall(103, 3, buffer, 4096)


@probe
def read_kernel_log_device():
    return read("/proc/kmsg")


@probe
def read_kernel_memory():
    return read("/proc/kcore")


@probe
def read_sys():
    return found(os.listdir("/sys"))


# -- processes of the host -------------------------------------------------------------------------


@probe
def see_host_processes():
    return found([pid for pid in processes() if T["nap"] in name_of(pid)[1] or pid in (T["own"], T["victim"])])


@probe
def read_host_environ():
    return read("/proc/%d/environ" % T["victim"])


@probe
def read_host_memory():
    return read("/proc/%d/maps" % T["victim"])


@probe
def trace_host_process():
    return syscall(101, 0x4206, T["victim"], 0, 0)


@probe
def stop_host_process():
    os.kill(T["victim"], signal.SIGSTOP)
    os.kill(T["victim"], signal.SIGCONT)
    return "stopped"


@probe
def open_host_process():
    return os.pidfd_open(T["victim"])


@probe
def kill_host_process():
    os.kill(T["victim"], signal.SIGKILL)
    return "killed"


@probe
def kill_the_executor():
    # Nothing: whether it may.
    os.kill(T["own"], 0)
    return "may"


# -- the process that holds secrets, and those that hold the sandbox -------------------------------


def memory(pid):
    with open("/proc/%d/maps" % pid) as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as file:
        file.seek(start)
        return len(file.read(64))


def memory_call(pid):
    here = ctypes.create_string_buffer(16)
    local = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(here), 8))
    remote = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(here), 8))
    return syscall(310, pid, local, 1, remote, 1, 0)


def seize(pid):
    return syscall(101, 0x4206, pid, 0, 0)


def steal_descriptor(pid):
    return syscall(438, os.pidfd_open(pid), 1, 0)


def descriptors(pid):
    return [os.readlink("/proc/%d/fd/%s" % (pid, number)) for number in os.listdir("/proc/%d/fd" % pid)]


def speak(pid):
    return os.open("/proc/%d/fd/1" % pid, os.O_WRONLY)


@probe
def ansible_memory():
    return each(ansibles(), memory)


@probe
def ansible_memory_by_call():
    return each(ansibles(), memory_call)


@probe
def ansible_trace():
    return each(ansibles(), seize)


@probe
def ansible_steal_descriptor():
    return each(ansibles(), steal_descriptor)


@probe
def ansible_descriptors():
    return each(ansibles(), descriptors)


@probe
def ansible_console():
    return each(ansibles(), speak)


@probe
def ansible_environ():
    return each(ansibles(), lambda pid: read("/proc/%d/environ" % pid))


def status(pid):
    with open("/proc/%s/status" % pid) as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


@probe
def rights_of_init():
    """Whoever takes the first process over has its rights: they must be no more than everybody's."""
    first, own = status(1), status("self")
    assert "CapEff" in first
    more = {name: first[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "Uid", "Gid") if first[name] != own[name]}
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        try:
            if os.readlink("/proc/1/ns/" + name) != os.readlink("/proc/self/ns/" + name):
                more[name] = "another"
        except OSError:
            # It cannot be taken over at all.
            pass
    return found(more)


@probe
def files_of_init():
    try:
        opened = descriptors(1)
    except PermissionError:
        raise Nothing()
    return found([to for to in opened if not to.startswith(("pipe:", "socket:", "anon_inode:[eventfd]", "anon_inode:[signalfd]",
                                                            "/dev/null"))])


@probe
def init_end():
    for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        os.kill(1, number)
    raise Nothing()


@probe
def secrets_in_arguments_and_environments():
    canary, seen = T["secret_reversed"][::-1], []
    for pid in processes():
        for what in ("cmdline", "environ"):
            try:
                with open("/proc/%d/%s" % (pid, what), "rb") as file:
                    if canary.encode() in file.read():
                        seen.append([pid, what])
            except OSError:
                pass
    return found(seen)


@probe
def secrets_in_files():
    canary, seen, read_files = T["secret_reversed"][::-1].encode(), [], 0
    for top in (T["job"], "/tmp", "/var/tmp", "/run", "/dev/shm"):
        for folder, _, names in os.walk(top):
            for name in names:
                place = os.path.join(folder, name)
                if os.path.isfile(place):
                    with open(place, "rb") as file:
                        read_files += 1
                        if canary in file.read(8 << 20):
                            seen.append(place)
    assert read_files > 5, "no files were read"
    return found(seen)


@probe
def inherited_descriptors():
    usual = ("pipe:", "/dev/null", "socket:", "/proc/")
    mine = {number: os.readlink("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd")
            if os.path.lexists("/proc/self/fd/" + number)}
    return found({number: to for number, to in mine.items() if not to.startswith(usual) and not to.endswith("probe.py")})


# -- writing outside -------------------------------------------------------------------------------


@probe
def write_keyring():
    return write(T["folder"] + "/keyring", "overwritten")


@probe
def write_keyring_through_a_link():
    os.symlink(T["folder"] + "/keyring", "link-to-write")
    return write("link-to-write", "overwritten")


@probe
def make_a_file_outside():
    # In the sandbox there may be a directory of this name in memory: whether it is the host's the host says.
    os.makedirs(T["folder"], exist_ok=True)
    write(T["folder"] + "/planted", "planted", os.O_WRONLY | os.O_CREAT)
    raise Nothing()


@probe
def hard_link_from_outside():
    os.link(T["folder"] + "/keyring", "hard-link")
    return read("hard-link")


@probe
def hard_link_a_program():
    os.link("/usr/bin/env", "env-here")
    return "linked"


@probe
def hard_link_the_playbook():
    os.link(T["playbook"], "playbook-here")
    return "linked"


@probe
def write_a_program():
    return write("/usr/bin/env", "")


@probe
def write_users():
    return write("/etc/passwd", "", os.O_WRONLY | os.O_APPEND)


@probe
def write_the_playbook():
    return write(T["playbook"], "", os.O_WRONLY | os.O_APPEND)


@probe
def write_ansible():
    return write(T["ansible"], "", os.O_WRONLY | os.O_APPEND)


@probe
def write_plugins():
    place = T["folder"] + "/executor"
    plugins = [name for name in os.listdir(place) if name.startswith("plugins-")]
    return write(os.path.join(place, plugins[0], "callback/gatelog_stream.py"), "", os.O_WRONLY | os.O_APPEND)


@probe
def write_inventory():
    return write(T["job"] + "/ansible/inventory.yaml", "", os.O_WRONLY | os.O_APPEND)


@probe
def write_root():
    return write("/planted", "", os.O_WRONLY | os.O_CREAT)


@probe
def make_immutable():
    # A file that nobody can remove.
    descriptor = os.open("immutable", os.O_RDWR | os.O_CREAT)
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("L", 0x10))
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("L", 0))
    return "made"


@probe
def give_a_program_capabilities():
    open("capable", "w").close()
    os.setxattr("capable", "security.capability", struct.pack("<5I", 0x02000001, 0xffffffff, 0, 0xffffffff, 0))
    return "given"


@probe
def give_a_file_away():
    open("given", "w").close()
    os.chown("given", 12345, 12345)
    return "given"


@probe
def become_another_user():
    os.setresuid(12345, 12345, 12345)
    return os.getuid()


@probe
def change_groups():
    os.setgroups([12345])
    return os.getgroups()


@probe
def gain_by_setuid():
    """A program that any user may run as its owner."""
    if status("self")["NoNewPrivs"] == "1":
        raise OSError(errno.EPERM, "no new privileges")
    return "may"


@probe
def have_capabilities():
    own = status("self")
    return found({name: own[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "CapInh") if int(own[name], 16)})


# -- name spaces and mounts ------------------------------------------------------------------------


def unshare(flag):
    result = libc.unshare(flag)
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "made"


@probe
def new_user_namespace():
    return unshare(0x10000000)


@probe
def new_user_namespace_by_clone():
    child = syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@probe
def new_mount_namespace():
    return unshare(0x00020000)


@probe
def new_network_namespace():
    return unshare(0x40000000)


@probe
def new_pid_namespace():
    return unshare(0x20000000)


@probe
def new_ipc_namespace():
    return unshare(0x08000000)


@probe
def new_host_name_namespace():
    return unshare(0x04000000)


@probe
def new_cgroup_namespace():
    return unshare(0x02000000)


@probe
def new_time_namespace():
    return unshare(0x00000080)


@probe
def enter_namespaces_of_init():
    refusal = None
    for name in ("mnt", "user", "net", "pid"):
        try:
            with open("/proc/1/ns/" + name) as file:
                if libc.setns(file.fileno(), 0) == 0:
                    return name
                refusal = OSError(ctypes.get_errno(), name)
        except OSError as error:
            refusal = error
    raise refusal


@probe
def mount_memory():
    return syscall(165, b"none", b"/tmp", b"tmpfs", 0, None)


@probe
def mount_bind():
    return syscall(165, b"/usr", b"/tmp", None, 4096, None)


@probe
def mount_root_writable():
    return syscall(165, None, b"/", None, 32 | 4096, None)


@probe
def mount_proc():
    return syscall(165, b"proc", b"/tmp", b"proc", 0, None)


@probe
def mount_control_groups():
    return syscall(165, b"none", b"/tmp", b"cgroup2", 0, None)


@probe
def mount_by_file_system_calls():
    return syscall(430, b"tmpfs", 0)


@probe
def clone_a_mount():
    return syscall(428, -100, b"/usr", 1)


@probe
def unmount():
    return syscall(166, b"/tmp", 2)


@probe
def change_root():
    os.chroot("/tmp")
    return os.listdir("/")


@probe
def pivot_root():
    return syscall(155, b"/tmp", b"/tmp")


@probe
def nested_bubblewrap():
    ended = subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True)
    if ended.returncode:
        raise Nothing(ended.stderr)
    return "made"


# -- devices and the kernel ------------------------------------------------------------------------


@probe
def other_devices():
    usual = {"console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
             "urandom", "zero"}
    return found(sorted(set(os.listdir("/dev")) - usual))


@probe
def make_a_disk():
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(T["disk"][0], T["disk"][1]))
    return "made"


@probe
def make_a_memory_device():
    os.mknod("mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return "made"


@probe
def type_into_a_terminal():
    refusal = None
    for place in ("/dev/tty", "/dev/stdin", "/dev/console"):
        try:
            return fcntl.ioctl(os.open(place, os.O_RDWR), 0x5412, b"x")
        except OSError as error:
            refusal = error
    raise refusal


@probe
def write_kernel_settings():
    refusal = None
    for name in ("kernel/core_pattern", "kernel/hostname", "kernel/panic", "vm/drop_caches", "kernel/pid_max",
                 "net/ipv4/ip_forward", "user/max_user_namespaces"):
        place = "/proc/sys/" + name
        try:
            before = read(place) if name != "vm/drop_caches" else "1"
            return [name, write(place, before)]
        except OSError as error:
            refusal = error
    raise refusal


@probe
def write_anywhere_in_proc():
    """What of /proc is not a process's own."""
    opened = []
    for folder, folders, names in os.walk("/proc"):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self", "net")]
        for name in names:
            place = os.path.join(folder, name)
            if os.path.islink(place):
                continue
            try:
                os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
                opened.append(place)
            except OSError:
                pass
    return found(opened)


@probe
def press_sysrq():
    return write("/proc/sysrq-trigger", "?")


@probe
def load_a_module():
    return syscall(175, b"", 0, b"")


@probe
def unload_a_module():
    return syscall(176, b"gatelog_no_such_module", 0)


@probe
def load_another_kernel():
    return syscall(246, 0, 0, None, 0)


@probe
def reboot():
    # Were it allowed, only the keys Ctrl-Alt-Del would mean something else.
    return syscall(169, 0xfee1dead - (1 << 32), 672274793, 0, None)


@probe
def swap():
    return syscall(167, b"/nowhere", 0)


@probe
def account():
    return syscall(163, None)


@probe
def hang_up():
    return syscall(153)


@probe
def set_the_clock():
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@probe
def set_the_host_name():
    socket.sethostname("attacked")
    return "set"


@probe
def use_io_ports():
    return syscall(172, 3)


@probe
def go_first():
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    return "first"


@probe
def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "real time"


@probe
def survive_the_lack_of_memory():
    return write("/proc/self/oom_score_adj", "-1000")


@probe
def raise_own_limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError:
        raise OSError(errno.EPERM, "no limit is raised")
    return "raised"


# -- what processes share --------------------------------------------------------------------------


def search_keyring(keyring):
    key = syscall(250, 10, keyring, b"user", T["key"].encode(), 0)
    return content(key)


@probe
def read_session_keyring():
    return search_keyring(-3)


@probe
def read_user_keyring():
    return search_keyring(-4)


@probe
def read_user_session_keyring():
    return search_keyring(-5)


@probe
def read_list_of_keys():
    return found([line for line in read("/proc/keys").splitlines() if T["key"] in line])


def content(key):
    buffer = ctypes.create_string_buffer(100)
    syscall(250, 11, key, buffer, 100, 0)
    return buffer.value.decode()


@probe
def read_key_by_number():
    # A key may be asked for by its number, whatever keyring it is in.
    return content(T["key_number"])


@probe
def read_key_by_way_of_the_user_keyring():
    # Whoever links a keyring of the user's to its own possesses what is in it. Numbers can be tried out, all of them.
    syscall(250, 8, T["keyring_number"], -3)
    return content(T["key_number"])


@probe
def shared_memory_of_the_host():
    return syscall(29, T["ipc"], 0, 0)


@probe
def semaphores_of_the_host():
    return syscall(64, T["ipc"], 0, 0)


@probe
def messages_of_the_host():
    return syscall(68, T["ipc"], 0)


@probe
def message_queue_of_the_host():
    return syscall(240, T["queue"].encode(), os.O_RDONLY, 0, None)


@probe
def shared_memory_file_of_the_host():
    return read("/dev/shm/" + T["queue"])


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(5)
        stream.connect(address)
        return stream.recv(100).decode()


@probe
def socket_file_of_the_host():
    return connect(socket.AF_UNIX, T["folder"] + "/s")


@probe
def abstract_socket_of_the_host():
    return connect(socket.AF_UNIX, "\0" + T["queue"])


@probe
def loopback_of_the_host():
    return connect(socket.AF_INET, ("127.0.0.1", T["port"]))


@probe
def raw_packets():
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).fileno()


@probe
def raw_addresses():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).fileno()


@probe
def change_an_interface():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(any_socket, 0x8913, request)
        fcntl.ioctl(any_socket, 0x8914, bytes(request))
    return "changed"


@probe
def mark_packets():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.setsockopt(socket.SOL_SOCKET, 36, 1)
    return "marked"


# -- system calls that only a filter refuses -------------------------------------------------------


@probe
def io_uring():
    return syscall(425, 4, ctypes.create_string_buffer(120))


@probe
def userfaultfd():
    return syscall(323, 1)


@probe
def add_a_key():
    return syscall(248, b"user", b"gatelog-hostile", b"x", 1, -3)


@probe
def fanotify():
    return syscall(300, 0x200, 0)


@probe
def secret_memory():
    return syscall(447, 0)


@probe
def load_bpf():
    attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(112))
    return syscall(321, 0, attributes, 128)


@probe
def count_events():
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0) + bytes(96))
    return syscall(298, attributes, -1, 0, -1, 0)


@probe
def virtual_sockets():
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).fileno()


@probe
def kernel_ciphers():
    return socket.socket(38, socket.SOCK_SEQPACKET, 0).fileno()


# --------------------------------------------------------------------------------------------------


def attempt(function):
    try:
        return {"got": repr(function())[:300]}
    except Nothing:
        return {"refused": "nothing"}
    except NotImplementedError as reason:
        return {"skipped": str(reason)}
    except OSError as error:
        return {"refused": errno.errorcode.get(error.errno, str(error.errno))}
    except BaseException:
        return {"broken": traceback.format_exc()[-600:]}


def run(name):
    """In a process of its own, which an attack may ruin."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(20)
        if T.get("control"):
            # What it mounts on the host stays with it.
            libc.unshare(0x00020000) or libc.mount(None, b"/", None, ctypes.c_ulong(0x44000), None)
        said = attempt(PROBES[name])
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"refused": "killed"}


def main():
    os.chdir(T["place"])
    for name in sys.argv[2:] or PROBES:
        print("probe", json.dumps(dict(run(name), name=name)), flush=True)


main()
