#!/usr/bin/env python3
"""The key store of an installed Zuul, on a ZooKeeper that is a dictionary.

    zuul_keystore.py make FILE        makes keys as a scheduler does and exports them
    zuul_keystore.py take FILE        imports FILE and prints what Zuul has then

What is asked for comes on standard input, a JSON document:

    {"password": TEXT, "projects": [[CONNECTION, PROJECT], ...], "tenants": [NAME, ...],
     "secrets": [[CONNECTION, PROJECT, [CHUNK, ...]], ...]}

Printed is a JSON document: public halves, and what the secrets decipher to (null where they do not).
"""
import json
import sys
from base64 import b64decode

import kazoo.exceptions
from zuul.lib import encryption
from zuul.lib.keystorage import KeyStorage


class Nodes:
    """As much of a ZooKeeper as the key store asks for."""

    def __init__(self):
        self.data = {}

    def create(self, path, value=b"", makepath=False):
        if path in self.data:
            raise kazoo.exceptions.NodeExistsError()
        parts = path.split("/")
        for end in range(2, len(parts)):
            self.data.setdefault("/".join(parts[:end]), b"")
        self.data[path] = value

    def set(self, path, value):
        self.data[path] = value

    def get(self, path):
        if path not in self.data:
            raise kazoo.exceptions.NoNodeError()
        return self.data[path], None

    def get_children(self, path):
        below = [name[len(path) + 1:] for name in self.data if name.startswith(path + "/")]
        return sorted(name for name in below if "/" not in name)


class Client:
    def __init__(self):
        self.client = Nodes()
        self.on_connect_listeners = []
        self.on_disconnect_listeners = []
        self.on_reconnect_listeners = []
        self.on_suspended_listeners = []


def clear(private, chunks):
    try:
        return "".join(encryption.decrypt_pkcs1_oaep(b64decode(chunk), private).decode() for chunk in chunks)
    except ValueError:
        return None


def main():
    what, path = sys.argv[1:]
    asked = json.load(sys.stdin)
    client = Client()
    client.client.create("/keystorage", makepath=True)
    client.client.create("/keystorage2", makepath=True)
    store = KeyStorage(client, asked["password"], start_cache=False)
    if what == "take":
        with open(path) as file:
            store.importKeys(json.load(file), False)
    held = set(client.client.data)
    told = {"secrets": {}, "ssh": {}, "tenants": {}}
    for connection, project in asked["projects"]:
        _, public = store.getProjectSecretsKeys(connection, project)
        told["secrets"][project] = encryption.serialize_rsa_public_key(public).decode()
        told["ssh"][project] = store.getProjectSSHKeys(connection, project)[1]
    for tenant in asked["tenants"]:
        told["tenants"][tenant] = store.getTenantSSHKeys(tenant)[1]
    # Whether it had to make any of them.
    told["made"] = len(set(client.client.data) - held)
    told["clear"] = [
        clear(store.getProjectSecretsKeys(connection, project)[0], chunks)
        for connection, project, chunks in asked.get("secrets", [])
    ]
    if what == "make":
        with open(path, "w") as file:
            json.dump(store.exportKeys(), file)
    json.dump(told, sys.stdout)


main()
