"""Repairs without a finding: a person requests a reboot or a new start of the driver, as the desired state allows."""

from pyinfra.context import host as current_host

from shakedown.operations import driver
from shakedown.operations import reboot as reboots
from shakedown.runner.jobs.holders import job_on
from shakedown.runner.repair.service import on_its_gpus
from shakedown.runner.session import Session, session
from shakedown.service.model import Repair


def reboot() -> None:
    """Reboot the current host."""
    current = session()
    if _may(current, "reboot"):
        system = current.examination.desired[current_host.name].system
        reboots.again(name="Reboot", at_once=system.reboot_at_once, timeout_s=system.reboot_timeout_s)


def reload_driver() -> None:
    """Unload the modules of the current host's GPUs and load them again."""
    current = session()
    if not _may(current, "reload driver"):
        return
    modules = list(current.examination.desired[current_host.name].gpu.modules)
    if not modules:
        _fail(current, "the desired state names no modules of its GPUs (gpu.modules)")
        return
    driver.reload(name="Reload the driver", modules=modules)


def _may(current: Session, rung: Repair) -> bool:
    """Return whether the desired state allows a step, and the host answers, as root, with its GPUs free."""
    name = current_host.name
    service = current.examination.desired[name].service
    state = current.examination.state_of(name)
    if service is None or rung not in service.rungs:
        _fail(current, f'not allowed: service.rungs of the desired state has no "{rung}"')
    elif state is None:
        _fail(current, "could not be examined")
    elif state.probe.uid != 0:
        _fail(current, "not root there: set _sudo")
    elif users := on_its_gpus(state, current.examination.desired[name]):
        _fail(current, f"never a node with a job: {users}")
    elif why := job_on(current.examination.desired[name], name):
        _fail(current, why)
    else:
        return True
    return False


def _fail(current: Session, why: str) -> None:
    current.fail(current.host(current_host.name), why, current.examination.blockers(current_host.name))
