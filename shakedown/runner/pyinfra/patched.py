"""What has to be done to the process before pyinfra is loaded, and best before anything is: gevent's patches look at
every object that there is for locks that were made before, and every package that asks for entry points has those of
all packages read. Whatever uses pyinfra's API imports this first.
"""

from shakedown.runner.pyinfra.lazily import entry_points_once, lazily

entry_points_once()

from gevent import monkey  # noqa: E402

monkey.patch_all()
lazily("invoke")  # paramiko loads it, and YAML with it, for `Match exec` of an ssh_config alone
