"""What Ansible's words are called here."""

_GROUPS = "groups as lists of hosts: `shakedown init --from FILE` makes an inventory of Ansible's"
_RENAMED = {
    "ssh_hostname": ("ansible_host", "ansible_ssh_host"),
    "ssh_user": ("ansible_user", "ansible_ssh_user", "remote_user"),
    "ssh_port": ("ansible_port", "ansible_ssh_port"),
    "ssh_key": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "ssh_password": ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
    "_sudo": ("become", "ansible_become"),
    "_sudo_user": ("become_user", "ansible_become_user"),
    "_sudo_password": ("ansible_become_password", "ansible_become_pass"),
}
NAMES = {word: key for key, words in _RENAMED.items() for word in words}
WORDS = {
    **{word: f"pyinfra's key {key!r}" for word, key in NAMES.items()},
    **dict.fromkeys(("hosts", "children", "vars", "roles", "tasks"), _GROUPS),
    "ansible_connection": "the host's name '@local' for this machine",
    "environment": "smoke.environment for the job, or pyinfra's key '_env'",
    "serial": "service.batch",
}
"""Ansible's words -> what is expected in their place."""
