"""The typed desired state, one module per subject. A field that is None (or empty) is not checked and not changed.

Every model refuses unknown keys and wrong types: a site's layer with a typing error must never be read as "not
requested". Figures come from the profiles (`profiles/*.toml`), which name their sources.
"""

from shakedown.desired.models.agent import Agent
from shakedown.desired.models.benchmark import Benchmark
from shakedown.desired.models.gpu import Gpu
from shakedown.desired.models.images import Image, Mirror, Pulls
from shakedown.desired.models.rdma import Provider, Rdma
from shakedown.desired.models.section import Section
from shakedown.desired.models.service import Bmc, Rolling, Service
from shakedown.desired.models.signing import Signing
from shakedown.desired.models.smoke import EACH, TOGETHER, Smoke
from shakedown.desired.models.soak import Soak
from shakedown.desired.models.software import DataFile, Dataset, Packages, Source
from shakedown.desired.models.state import NO_PROMISE, DesiredState
from shakedown.desired.models.system import ContainerEngine, System
from shakedown.desired.models.trials import Trials
from shakedown.desired.models.tuning import Tuning
from shakedown.desired.models.waivers import Waiver

__all__ = [
    "EACH",
    "NO_PROMISE",
    "TOGETHER",
    "Agent",
    "Benchmark",
    "Bmc",
    "ContainerEngine",
    "DataFile",
    "Dataset",
    "DesiredState",
    "Gpu",
    "Image",
    "Mirror",
    "Packages",
    "Provider",
    "Pulls",
    "Rdma",
    "Rolling",
    "Section",
    "Service",
    "Signing",
    "Smoke",
    "Soak",
    "Source",
    "System",
    "Trials",
    "Tuning",
    "Waiver",
]
