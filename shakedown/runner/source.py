"""Programs from source: checkout, patches, virtual environment, as the desired state's section `source` says."""

from pyinfra.context import host as current_host

from shakedown.operations import checkout, patch, venv
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import session


def build() -> None:
    """Have the program of the current host's `source` at its commit, patched, installed and importable."""
    current = session()
    name = current_host.name
    desired = current.examination.desired[name]
    source = desired.source
    if source is None or not current.may_change(name, as_root=False):
        return
    if not invocation.dry:
        current.open_run()
    checkout.git(name=f"{source.path}: checkout", url=source.url, path=source.path, commit=source.commit)
    for file in source.patches:
        patch.apply(name=f"{source.path}: {file}", path=source.path, patch_file=file)
    if source.venv is None:
        return
    venv.install(
        name=f"{source.venv}: virtual environment",
        path=source.venv,
        steps=[
            step.model_dump(exclude_none=True)
            | ({"requirements": f"{source.path}/{step.requirements}"} if step.requirements else {})
            for step in source.install
        ],
        editable=source.path if source.editable else None,
        modules=source.modules,
        rocm=desired.gpu.count > 0,
        python=source.python,
    )
