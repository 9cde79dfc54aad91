"""What holds for every host of every inventory here; groups, hosts and --data override it, key by key.

A group that an inventory names has its own file beside this one: group_data/rack7.py. `shakedown show INVENTORY HOST`
prints each value with the layer that it comes from.

    ssh_user = "root"
    tuning = {"sysctl": {"vm.swappiness": 10}}
"""
