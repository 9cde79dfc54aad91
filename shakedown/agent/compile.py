"""What a node's agent compares with: one document for that node, with its digest. It holds what the checks answer of
the desired state, and what they would look up on the controller: the recipe, the profiles' PCI ids. No secret."""

import hashlib
import json
from functools import cache
from typing import Any

from shakedown import checks
from shakedown.checks.waivers import own_cables
from shakedown.common.prometheus_names import AGENT_REPORT, LABELS, NAMES
from shakedown.common.secrets import masked
from shakedown.desired import profiles
from shakedown.desired.models import Agent, DesiredState, Tuning
from shakedown.desired.resolve import at_home
from shakedown.node import sysctl
from shakedown.recipes.documents import room
from shakedown.recipes.recipe import Family, families, recipes
from shakedown.state.images import parse
from shakedown.state.node import Account

SCHEMA_VERSION = 1
# Of those that the controller's own report has, the ones that are about one node.
METRICS = (
    "shakedown_verdict",
    "shakedown_finished_timestamp_seconds",
    "shakedown_findings",
    "shakedown_finding_not_ok",
    "shakedown_suspect",
    "shakedown_cause_info",
    AGENT_REPORT,
)
_OF_A_FAMILY = {"limits", "container", "cautions"}  # what the checks read of one


def compiled(node: str, desired: DesiredState, account: Account, program: str, inventory: str = "") -> dict[str, Any]:
    """Compile the document of a node. `account`: who runs jobs there, as whom the controller examined the node.
    `program`: the digest of the program that will read it. `inventory`: a label of its metrics."""
    agent = desired.agent or Agent()
    about = {
        "desired": _asked_for(at_home(own_cables(desired, node), account.home)),
        "recipes": _recipes(desired),
        "families": _cautious(),
        "profiles": {"gpu": _profiles()},
        "rooms": {
            f"{at.name}:{at.tag}": room(at) for at in (parse(image.reference) for image in desired.images.values())
        },
        "user": account.user,
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "node": node,
        "inventory": inventory,
        "digest": hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest(),
        "program": program,
        "home": account.home,
        **about,
        "asked": sysctl.question(desired.requested_readings),
        "tuning": list(Tuning.model_fields),
        "metrics": {name: {"help": NAMES[name], "labels": LABELS[name]} for name in METRICS},
        "agent": {**agent.model_dump(mode="json"), "stale_s": agent.stale_s},
    }


def digest(node: str, desired: DesiredState, account: Account) -> str:
    """Return the digest of a node's document that is compiled now: 64 hexadecimal digits."""
    return str(compiled(node, desired, account, "")["digest"])


def text(document: dict[str, Any]) -> str:
    """Write the document as the file has it: one line."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _asked_for(desired: DesiredState) -> dict[str, Any]:
    """Return the sections that checks answer, all of them: a check that misses one would fail, and be unknown."""
    public = desired.smoke.not_secret if desired.smoke else ()
    document: dict[str, Any] = masked(desired.model_dump(mode="json", include=checks.sections()), public)
    return document


def _recipes(desired: DesiredState) -> dict[str, Any]:
    recipe = recipes().get(desired.smoke.recipe) if desired.smoke else None
    if recipe is None:
        return {}
    return {recipe.name: {"name": recipe.name, "document": str(recipe.document), "family": _family(recipe.family)}}


@cache
def _cautious() -> dict[str, Any]:
    return {name: _family(family) for name, family in families().items() if family.cautions}


def _family(family: Family) -> dict[str, Any]:
    return family.model_dump(mode="json", include=_OF_A_FAMILY)


@cache
def _profiles() -> dict[str, Any]:
    """Return what tells which GPUs are known: names and PCI ids."""
    known = {name: profiles.load("gpu", name)["gpu"] for name in profiles.names("gpu")}
    return {name: {"gpu": {key: gpu[key] for key in ("name", "pci_ids") if key in gpu}} for name, gpu in known.items()}
